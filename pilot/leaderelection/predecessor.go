package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Predecessor names a lock that guarded, in earlier versions, what an election guards
// now, such as the one ConfigMap istio-gateway-status-leader that elections per revision
// have replaced. Replicas of earlier versions, istiods too, act while they hold it.
//
// The leader of an election with a predecessor starts its run functions once it holds
// that lock as well: it waits like any other candidate until the lock is free or its
// lease has run out, and then keeps it, under the name of no process, for as long as
// functions run. Leaders that come in the same predecessor's place, those of other
// revisions, keep it together and do not wait for each other. Replicas of earlier
// versions see a held lock and wait.
//
// Nobody releases a lock that is kept so: somebody else may be keeping it too. When the
// last one has stopped it runs out, and replicas of earlier versions go on a lease later.
// That is the way back. Once no such replica can come any more, leave the predecessor
// out of the configuration and delete its object; see docs/migration.md.
type Predecessor struct {
	// Namespace of the lock object; empty means the election's own.
	Namespace string
	// Name of the lock object.
	Name string
	// Lock is its kind: ConfigMapLock or LeaseLock.
	Lock LockType
}

func (p Predecessor) validate() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Subdomain(p.Name) {
		errs = append(errs, fmt.Errorf("the Predecessor's Name %q: %s", p.Name, problem))
	}
	if p.Lock != ConfigMapLock && p.Lock != LeaseLock {
		errs = append(errs, fmt.Errorf("the Predecessor's Lock %v is neither ConfigMapLock nor LeaseLock", p.Lock))
	}
	return errors.Join(errs...)
}

// errKeepLost is why functions are stopped while the election's own lock is held.
var errKeepLost = errors.New("the predecessor's lock was lost")

// watchedLock is what a keeper needs of the predecessor's lock.
type watchedLock interface {
	k8sresourcelock.Versioned
	k8sresourcelock.Watchable
}

// keeper holds the predecessor's lock while run functions run.
type keeper struct {
	lock     watchedLock
	clock    *k8sleaderelection.Clock
	log      *slog.Logger
	lease    time.Duration
	deadline time.Duration
	retry    time.Duration
	// key is the rank to write into the lock, so that nobody preempts it.
	key func() string
	// bound tells the gate until when the lock is kept.
	bound func(k8sleaderelection.Cover)
	// elect makes a candidate for the lock as it is among earlier versions; lead runs
	// while it leads.
	elect func(lead func(context.Context) error, seen func(holder string)) (candidate, error)
	// deflt is the default revision, by which that candidate ranks.
	deflt func() k8sleaderelection.DefaultRevision
	// drainLimit is how long functions may take to return once the lock was lost; then
	// stepDown ends the term of the election itself.
	drainLimit time.Duration
	stepDown   func()
	peerGrace  time.Duration
	// former outlives a term: whoever was seen in one may still act in the next.
	former *former
}

// hold is the lock as we last wrote it, and until when that lets us act.
type hold struct {
	snap  k8sresourcelock.Snapshot
	sent  k8sleaderelection.Moment
	cover k8sleaderelection.Cover
}

// run has work run while the lock is kept, anew after each time that it was lost. It
// returns when ctx has ended or work has failed, and work has returned.
func (k *keeper) run(ctx context.Context, work func(context.Context) error) error {
	k.bound(k8sleaderelection.Cover{})
	for ctx.Err() == nil {
		held, ok := k.acquire(ctx)
		if !ok {
			return nil
		}
		k.log.Info("the predecessor's lock is kept; run functions may start", "lock", k.lock.Describe())
		err := k.keep(ctx, held, work)
		if !errors.Is(err, errKeepLost) {
			return err
		}
		k.log.Warn("the predecessor's lock was lost; run functions have been stopped", "lock", k.lock.Describe())
	}
	return nil
}

// acquire returns once the lock is kept by a write of our own that lets us act now; false:
// ctx has ended. Taking the lock may last longer than what it brings: see win.
func (k *keeper) acquire(ctx context.Context) (hold, bool) {
	for fails := 0; ctx.Err() == nil; fails++ {
		began := k.clock.Now()
		if held, ok := k.take(ctx); ok && held.cover.Left(k.clock.Now()) > 0 {
			wait := k.former.actsFor(k.clock.Now())
			if wait <= 0 {
				return held, true
			}
			k.linger(ctx, min(wait, k.retry)) // and keep the lock meanwhile
			continue
		}
		if began.Mono.Until(k.clock.Now().Mono) > k.retry {
			fails = 0 // it was not in vain: somebody else had the lock meanwhile
		}
		k.backOff(ctx, fails, 2*k.retry)
	}
	return hold{}, false
}

// take is one attempt to keep the lock.
func (k *keeper) take(ctx context.Context) (hold, bool) {
	snap, err := k.read(ctx)
	switch {
	case err != nil:
		return hold{}, false
	case snap.KeptForSuccessors():
		k.follows(snap)
		held, err := k.write(ctx, snap)
		return held, err == nil
	}
	k.saw(snap.Record.HolderIdentity, snap.UID, snap.Record.LeaderTransitions)
	k.log.Info("waiting for the predecessor's lock", "lock", k.lock.Describe(), "holder", snap.Record.HolderIdentity)
	// A record of theirs without the note that makes it one is anybody's.
	return k.win(ctx, snap.UID, snap.Record.HolderIdentity != k8sresourcelock.Successors)
}

// callTimeout leaves time for another try within the deadline.
func (k *keeper) callTimeout() time.Duration { return (k.deadline - k.retry) / 2 }

func (k *keeper) read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, k.callTimeout())
	defer cancel()
	return k.lock.Read(ctx)
}

// write keeps the lock for another while, or makes a lock that is ours one that is kept.
// What it lets us do counts from when it was sent.
func (k *keeper) write(ctx context.Context, base k8sresourcelock.Snapshot) (hold, error) {
	ctx, cancel := context.WithTimeout(ctx, k.callTimeout())
	defer cancel()
	sent := k.clock.Now()
	record := k.record(base, sent)
	notes := map[string]string{k8sresourcelock.PredecessorAnnotation: k8sresourcelock.SuccessorsNote(record, k.lock.Identity())}
	snap, err := k.lock.Write(ctx, base, record, notes)
	if err == nil && snap.ResourceVersion == base.ResourceVersion {
		err = errors.New("the write changed nothing")
	}
	if err != nil {
		return hold{}, err
	}
	return hold{snap: snap, sent: sent, cover: sent.Plus(k.deadline)}, nil
}

func (k *keeper) record(base k8sresourcelock.Snapshot, now k8sleaderelection.Moment) k8sresourcelock.LeaderElectionRecord {
	r := base.Record
	// A second above the recorded stamp at least: with less, the bytes may stay as they are.
	stamp := time.Unix(0, now.Wall).UTC().Truncate(time.Second)
	if next := r.RenewTime.Add(time.Second).UTC(); stamp.Before(next) && next.Before(stamp.Add(24*time.Hour)) {
		stamp = next
	}
	if r.HolderIdentity != k8sresourcelock.Successors {
		r.HolderIdentity, r.AcquireTime = k8sresourcelock.Successors, metav1.NewTime(stamp)
		r.LeaderTransitions++
	}
	r.HolderKey, r.RenewTime = k.key(), metav1.NewTime(stamp)
	r.LeaseDurationSeconds = int(k.lease / time.Second)
	return r
}

// keep renews the lock while work runs, and for as long as it takes to return.
func (k *keeper) keep(ctx context.Context, held hold, work func(context.Context) error) error {
	s := &keeping{keeper: k, held: held, news: make(chan k8sresourcelock.Snapshot), answers: make(chan answer, 1)}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	background, stop := context.WithCancel(context.WithoutCancel(ctx)) // a drain outlasts ctx
	defer s.calls.Wait()
	defer stop()
	helpers.Go(func() { s.follow(background) })
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	k.bound(held.cover)
	go func() {
		err := k8sleaderelection.ErrGoexit // unless work returns
		defer func() { done <- err }()
		err = work(working)
	}()
	err := s.loop(background, ctx.Done(), done)
	if errors.Is(err, errKeepLost) {
		k.bound(k8sleaderelection.Cover{})
		cancel(err)
		if s.alive {
			k.awaitDrain(done)
		}
	}
	return err
}

// awaitDrain waits for functions that were told to stop because the lock was lost. The
// election's own lock stays held meanwhile, so that no drain of the elector's is under way: when
// they outstay their limit the term is ended, and the elector reports them, and ends the process if
// it is to.
func (k *keeper) awaitDrain(done <-chan error) {
	limit := time.NewTimer(k.drainLimit)
	defer limit.Stop()
	select {
	case <-done:
		return
	case <-limit.C:
	}
	k.log.Error("run functions did not return in time after the predecessor's lock was lost; stepping down", "lock", k.lock.Describe(), "limit", k.drainLimit)
	k.stepDown()
	<-done // bounded by what the elector does about a drain that outstays its limit
}

// mayWork reports whether the predecessor's lock, if there is one, is kept now.
func (l *LeaderElection) mayWork() bool {
	return l.cfg.Predecessor == nil || l.bound.left(l.clock.Now()) > 0
}

// keeper makes the keeper of the predecessor's lock.
func (l *LeaderElection) keeper(client kubernetes.Interface) *keeper {
	p := *l.cfg.Predecessor
	if p.Namespace == "" {
		p.Namespace = l.cfg.Namespace
	}
	lock := l.lockOn(client, metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, p.Lock, l.hub)
	k := &keeper{
		lock: lock, clock: l.clock, log: l.cfg.Logger.With("election", l.cfg.lockName()),
		lease: l.cfg.LeaseDuration, deadline: l.cfg.RenewDeadline, retry: l.cfg.RetryPeriod,
		key: l.keptKey, bound: l.bound.setBound, deflt: l.knownDefault,
		drainLimit: l.elector.Load().DrainLimit(), stepDown: l.StepDown, peerGrace: l.cfg.PeerGrace,
		former: &l.former,
	}
	k.elect = func(lead func(context.Context) error, seen func(string)) (candidate, error) {
		return l.predecessorCandidate(lock, lead, seen)
	}
	return k
}

// keptKey is the rank that the kept lock shows: the default revision, which nobody
// outranks. An istiod of a higher rank would take the lock at once.
func (l *LeaderElection) keptKey() string {
	if d := l.knownDefault(); d.Revision != "" {
		return d.Revision
	}
	return l.cfg.key()
}

// knownDefault is the default revision as the watcher has it now.
func (l *LeaderElection) knownDefault() k8sleaderelection.DefaultRevision {
	if w := l.cfg.DefaultWatcher; w != nil && w.HasSynced() {
		return k8sleaderelection.DefaultRevision{Synced: true, Revision: w.GetDefault()}
	}
	return k8sleaderelection.DefaultRevision{}
}

// versionOf orders snapshots of one object.
func versionOf(s k8sresourcelock.Snapshot) uint64 {
	v, _ := strconv.ParseUint(s.ResourceVersion, 10, 64)
	return v
}
