package locktest

import (
	"context"
	"errors"
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
	// Outranks reports whether the peer overwrites a live holder with this key. If nil, it overwrites no live
	// holder.
	Outranks func(key string) bool
	// Work runs while the peer regards itself as leader.
	Work func(ctx context.Context)

	// object is the object of the last reply. It is the base of the next write.
	object   Object // as the last call showed it; the guard of the next
	record   k8sresourcelock.LeaderElectionRecord
	raw      string
	observed time.Time
}

// Run takes part in the election until ctx is done and the work has returned.
func (p *Peer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		p.object, p.raw = nil, ""
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
		if p.Work != nil {
			p.Work(working)
		}
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
		_ = p.put(late, released)
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
	found, err := p.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		p.object = nil
		return p.put(ctx, next) == nil
	case err != nil || found.Unreadable != nil:
		return false
	}
	if string(found.Raw) != p.raw {
		p.raw, p.record, p.observed = string(found.Raw), found.Record, now()
	}
	holder := found.Record.HolderIdentity
	live := holder != "" && now().Before(p.observed.Add(p.Lease))
	switch {
	case holder == p.Identity:
		next.AcquireTime, next.LeaderTransitions = found.Record.AcquireTime, found.Record.LeaderTransitions
	case live && (p.Outranks == nil || !p.Outranks(found.Record.HolderKey)):
		return false
	case found.Raw != nil:
		next.LeaderTransitions = found.Record.LeaderTransitions + 1
	}
	return p.put(ctx, next) == nil
}

func (p *Peer) get(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	obj, err := p.Client.exchange(ctx, Get, func() (Object, error) { return p.Client.store.get(Name) })
	if err != nil {
		return k8sresourcelock.Snapshot{}, err
	}
	p.object = obj
	return snapshotOf(obj), nil
}

// put writes the record to the object of the last reply.
func (p *Peer) put(ctx context.Context, r k8sresourcelock.LeaderElectionRecord) error {
	store := p.Client.store
	verb, obj := Create, store.blank()
	if p.object != nil {
		verb, obj = Update, clone(p.object)
	}
	setRecord(obj, r)
	stored, err := p.Client.exchange(ctx, verb, func() (Object, error) {
		if verb == Create {
			return store.create(p.Client.name, obj, false)
		}
		return store.update(p.Client.name, obj, false)
	})
	if err != nil {
		return err
	}
	if stored == nil {
		return errors.New("no reply")
	}
	snap := snapshotOf(stored)
	p.object, p.raw, p.record, p.observed = stored, string(snap.Raw), snap.Record, now()
	return nil
}
