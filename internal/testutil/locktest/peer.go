package locktest

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Peer is a candidate that behaves like istiod, without code of this project's elector. It polls, judges a record
// by changes of its bytes, overwrites holders of lower rank, preserves unknown annotations, and starts its work
// with the reply to its write. When it stops, it releases the lock even if its work has not returned.
type Peer struct {
	// Client is the connection to the store.
	Client        *Client
	Identity, Key string
	// Lease, Renew and Retry are LeaseDuration, RenewDeadline and RetryPeriod.
	Lease, Renew, Retry time.Duration
	// Outranks reports whether the peer overwrites a live holder with this key.
	Outranks func(key string) bool
	// Work runs while the peer regards itself as leader.
	Work func(ctx context.Context)

	lock     k8sresourcelock.Interface
	record   k8sresourcelock.LeaderElectionRecord // as last read or written
	raw      string
	observed time.Time
}

// Run takes part in the election until ctx is done and the work has returned.
func (p *Peer) Run(ctx context.Context) {
	p.lock = p.Client.lock(k8sresourcelock.ResourceLockConfig{Identity: p.Identity, Key: p.Key})
	for ctx.Err() == nil {
		p.raw = ""
		for !p.try(ctx, p.Renew) {
			if pass(ctx, p.Retry+rand.N(p.Retry*12/10)) != nil {
				return
			}
		}
		p.lead(ctx)
	}
}

// lead works and renews until no renewal has succeeded for Renew.
func (p *Peer) lead(ctx context.Context) {
	working, stop := context.WithCancel(ctx)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		p.Work(working)
	}()
	for p.renew(ctx) {
		if pass(ctx, p.Retry) != nil {
			break
		}
	}
	stop()
	if p.record.HolderIdentity == p.Identity {
		released := p.record
		released.HolderIdentity, released.HolderKey, released.LeaseDurationSeconds = "", "", 1
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Renew)
		_ = p.lock.Update(late, released)
		cancel()
	}
	<-returned
}

func (p *Peer) renew(ctx context.Context) bool {
	for end := now().Add(p.Renew); now().Before(end); {
		if p.try(ctx, end.Sub(now())) {
			return true
		}
		if pass(ctx, min(p.Retry, end.Sub(now()))) != nil {
			return false
		}
	}
	return false
}

// try tries once to acquire or renew the lock.
func (p *Peer) try(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stamp := metav1.NewTime(now().Truncate(time.Second))
	next := k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: p.Identity, HolderKey: p.Key, LeaseDurationSeconds: int(p.Lease / time.Second),
		AcquireTime: stamp, RenewTime: stamp,
	}
	write := p.lock.Update
	found, raw, err := p.lock.Get(ctx)
	if apierrors.IsNotFound(err) {
		write = p.lock.Create
	} else if err != nil || !p.claims(*found, raw, &next) {
		return false
	}
	if write(ctx, next) != nil {
		return false
	}
	p.record = next
	return true
}

// claims reports whether the peer writes next, and completes next.
func (p *Peer) claims(found k8sresourcelock.LeaderElectionRecord, raw []byte, next *k8sresourcelock.LeaderElectionRecord) bool {
	if string(raw) != p.raw {
		p.raw, p.record, p.observed = string(raw), found, now()
	}
	live := found.HolderIdentity != "" && now().Before(p.observed.Add(p.Lease))
	switch {
	case found.HolderIdentity == p.Identity:
		next.AcquireTime, next.LeaderTransitions = found.AcquireTime, found.LeaderTransitions
	case live && !p.Outranks(found.HolderKey):
		return false
	case raw != nil:
		next.LeaderTransitions = found.LeaderTransitions + 1
	}
	return true
}
