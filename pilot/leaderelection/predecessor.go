package leaderelection

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Predecessor is the lock that guarded the work of an election in earlier versions, for example the ConfigMap
// istio-gateway-status-leader, which elections per revision have replaced.
//
// When RunContext starts, it reads this lock. If the lock is absent or has no holder, the candidate campaigns for the election
// immediately. If the lock has a holder, the candidate joins that lock first, with the same identity and key, and does not
// campaign for the election. When it leads the old lock, the previous holder can no longer act: the candidate releases the old lock
// for good and campaigns for the election. istiod follows the same protocol, so both can be upgraded in any order.
//
// The old lock is never created, and it is not read again after that. To go back to a version that elects by the old lock,
// stop all newer replicas first.
//
// With Hold, the election is the second of three steps that move it to another lock object: replicas with only the old lock, with
// both, and with only the new lock. Steps 1 and 3 never run together. See docs/migration.md.
type Predecessor struct {
	// Namespace of the lock object. If empty, it is the namespace of the election.
	Namespace string
	// Name of the lock object.
	Name string
	// Lock is the kind of the lock object. Default: LockTypeLease.
	Lock LockType
	// Hold keeps the old lock: the election campaigns for it, and inside each of its terms for the new lock. It leads only in a term
	// of both, and releases the new lock before the old one. Handovers and operator commands use the old lock, which is created
	// if it is absent. The fencing token is of the new lock.
	Hold bool
}

func (p Predecessor) validate() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Subdomain(p.Name) {
		errs = append(errs, fmt.Errorf("the Predecessor's Name %q: %s", p.Name, problem))
	}
	if p.Lock != LockTypeConfigMap && p.Lock != LockTypeLease {
		errs = append(errs, fmt.Errorf("the Predecessor's Lock %q is neither LockTypeConfigMap nor LockTypeLease", p.Lock))
	}
	return errors.Join(errs...)
}

// predecessor is the part of this process in the election of the lock of earlier versions.
type predecessor struct {
	waiting atomic.Bool // without Hold
	elector atomic.Pointer[k8sleaderelection.LeaderElector]
}

// refresh passes a change of the default revision on to the elector of the old lock.
func (p *predecessor) refresh() {
	if e := p.elector.Load(); e != nil {
		e.Refresh()
	}
}

// awaitPredecessor returns when no process of an earlier version can act, or when ctx ends.
func (l *LeaderElection) awaitPredecessor(ctx context.Context, client kubernetes.Interface) error {
	if l.cfg.Predecessor == nil {
		return nil
	}
	l.predecessor.waiting.Store(true)
	defer l.predecessor.waiting.Store(false)
	lock := &existingLock{Lock: l.predecessorLock(client)}
	for ctx.Err() == nil {
		snapshot, err := l.readPredecessor(ctx, lock) // again after a deletion: it may exist again
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		if !snapshot.Exists || snapshot.Unreadable == nil && snapshot.Record.HolderIdentity == "" {
			return nil
		}
		lock.known.Store(&snapshot)
		active, err := l.joinPredecessor(ctx, lock)
		if active || err != nil {
			return err
		}
	}
	return nil
}

// predecessorLock returns the old lock. Its labels and owners have no effect on a lock that is not created.
func (l *LeaderElection) predecessorLock(client kubernetes.Interface) k8sresourcelock.Lock {
	p := *l.cfg.Predecessor
	if p.Namespace == "" {
		p.Namespace = l.cfg.Namespace
	}
	meta := metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: l.cfg.LockLabels, OwnerReferences: l.cfg.LockOwners}
	return l.lockOn(client, meta, p.Lock, l.shared)
}

// predecessorName is the name of the election of the old lock in logs and metrics.
func (c Config) predecessorName() string { return c.lockName() + " (predecessor)" }

// readPredecessor reads the old lock, and repeats that after RetryPeriod until it succeeds. An error means that ctx has ended.
func (l *LeaderElection) readPredecessor(ctx context.Context, lock *existingLock) (k8sresourcelock.Snapshot, error) {
	var reported apirequest.Reported[string]
	twice := k8sresourcelock.SendTwice(lock)
	for {
		call, cancel := context.WithTimeout(ctx, l.cfg.RenewDeadline)
		snapshot, err := twice.Read(call)
		cancel()
		if err == nil || ctx.Err() != nil {
			return snapshot, ctx.Err()
		}
		if reported.Failed("read", err) {
			l.log.Warn("failed to read the predecessor's lock; run functions wait. Grant get, watch and update on it.",
				"election", l.cfg.lockName(), "lock", lock.Describe(), "err", err)
		}
		_ = apirequest.Pause(ctx, l.cfg.RetryPeriod)
	}
}

// joinPredecessor takes part in the election of the old lock until this process leads it, and releases it. It returns false if
// ctx ended or the lock was deleted.
func (l *LeaderElection) joinPredecessor(ctx context.Context, lock *existingLock) (active bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var led atomic.Bool
	lock.deleted = cancel
	config := l.configOn(lock)
	config.Name = l.cfg.predecessorName()
	config.Ranked = true
	config.ReleaseOnCancel = true
	config.RunFunctions = []func(context.Context) error{func(ctx context.Context) error {
		led.Store(true)
		cancel()
		<-ctx.Done()
		return nil
	}}
	config.Callbacks.OnNewLeader = func(holder string) {
		if holder != "" && holder != l.cfg.holder() {
			l.log.Info("waiting for the predecessor's lock", "election", l.cfg.lockName(), "lock", lock.Describe(), "holder", holder)
		}
	}
	elector, err := k8sleaderelection.NewLeaderElector(config)
	if err != nil {
		return false, fmt.Errorf("join the predecessor's lock %s: %w", lock.Describe(), err)
	}
	l.predecessor.elector.Store(elector)
	defer l.predecessor.elector.Store(nil)
	err = elector.Campaign(ctx)
	if led.Load() {
		l.log.Info("acquired the predecessor's lock and released it; the election is active", "election", l.cfg.lockName(), "lock", lock.Describe())
		return true, nil
	}
	return false, err
}

// existingLock is a lock that is not created.
type existingLock struct {
	k8sresourcelock.Lock
	// known is the result of the next Read: the elector has to know the holder if the lock is deleted before its first own request.
	known atomic.Pointer[k8sresourcelock.Snapshot]
	// deleted is called when no holder of the deleted lock can act: the elector would create it with its own marker.
	deleted func()
}

// Read implements k8sresourcelock.Lock.
func (l *existingLock) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	if known := l.known.Swap(nil); known != nil {
		return *known, nil
	}
	return l.Lock.Read(ctx)
}

// Write implements k8sresourcelock.Lock.
func (l *existingLock) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, annotations map[string]string) (k8sresourcelock.Snapshot, error) {
	if !base.Exists {
		if annotations[record.MarkerAnnotation] != "" {
			l.deleted()
		}
		return k8sresourcelock.Snapshot{}, k8sresourcelock.ErrConflict
	}
	return l.Lock.Write(ctx, base, r, annotations)
}

// knownDefault returns the default revision of the watcher.
func (l *LeaderElection) knownDefault() k8sleaderelection.DefaultRevision {
	if w := l.cfg.DefaultWatcher; w != nil && w.HasSynced() {
		return k8sleaderelection.DefaultRevision{Synced: true, Revision: w.GetDefault()}
	}
	return k8sleaderelection.DefaultRevision{}
}
