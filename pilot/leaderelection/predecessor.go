package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"go.uber.org/atomic"
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
// lease has run out, and then keeps it, under the name incumbent-successors, which is no
// process (k8sresourcelock.Successors), for as long as functions run. Leaders that come in the same predecessor's place, those of other
// revisions, keep it together and do not wait for each other. Replicas of earlier
// versions see a held lock and wait.
//
// Followers watch the lock as well, and write nothing to it: whom they have seen lead by it
// may still act when they lead, whatever a restore has made of the record.
//
// Nobody releases a lock that is kept so: another process may be keeping it too. When the
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

// predecessorLock keeps a predecessor's lock while run functions run.
type predecessorLock struct {
	elector     *k8sleaderelection.LeaderElector
	self        string
	work        func(context.Context) error
	log         *slog.Logger
	campaigns   atomic.Bool // else it observes
	observation observation

	mu      sync.Mutex
	present presentRun
}

// presentRun is the run that there is, or was last.
type presentRun struct {
	term   k8sleaderelection.Term // the election's own
	ended  <-chan struct{}        // closed at its end, which is for
	end    context.CancelFunc
	failed error // what work returned before it was told to stop
}

// newPredecessorLock makes one by that configuration, and has work done while the lock is kept.
func newPredecessorLock(config k8sleaderelection.LeaderElectionConfig, work func(context.Context) error, log *slog.Logger) (*predecessorLock, error) {
	k := &predecessorLock{self: config.Lock.Identity(), work: work, log: log.With("lock", config.Lock.Describe())}
	// Until the lock is kept, it is a candidate as earlier versions have them.
	config.Ranked, config.Successor, config.ReleaseOnCancel = true, true, true
	config.RunFunctions = []func(context.Context) error{k.lead}
	config.Callbacks.OnNewLeader = func(holder string) {
		if k.campaigns.Load() {
			k.logWaiting(holder)
		}
	}
	var err error
	k.elector, err = k8sleaderelection.NewLeaderElector(config)
	return k, err
}

// observation is what follows the lock while it is not campaigned for.
type observation struct {
	during context.Context // the election's run; nil: nothing is observed
	pause  context.CancelFunc
	all    sync.WaitGroup
}

// observe has the lock followed until ctx ends, but for the runs that there are meanwhile. Who has led by it may act still when
// this process comes to lead its own lock, and after a restore the record may not tell so any more. end returns when nothing
// is under way.
func (k *predecessorLock) observe(ctx context.Context) (end func()) {
	o := &k.observation
	during, cancel := context.WithCancel(ctx)
	o.during = during
	k.resumeObserving()
	return func() { cancel(); o.all.Wait() }
}

// resumeObserving does nothing once the election's run has been told to end: functions that outstay their limit return after it.
func (k *predecessorLock) resumeObserving() {
	o := &k.observation
	if o.during == nil || o.during.Err() != nil {
		return
	}
	ctx, pause := context.WithCancel(o.during)
	o.pause = pause
	o.all.Go(func() { _ = k.elector.Observe(ctx) }) // which nothing keeps from running
}

func (k *predecessorLock) pauseObserving() {
	if o := &k.observation; o.pause != nil {
		o.pause()
		o.all.Wait()
	}
}

// run has work run while the lock is kept, anew after each time that it was lost. It returns when ctx has ended or
// work has failed, and work has returned.
func (k *predecessorLock) run(ctx context.Context) error {
	k.pauseObserving()
	defer k.resumeObserving()
	term, _ := k8sleaderelection.TermFromContext(ctx)
	ctx, end := context.WithCancel(ctx)
	defer end()
	k.mu.Lock()
	k.present = presentRun{term: term, ended: ctx.Done(), end: end}
	k.mu.Unlock()
	k.campaigns.Store(true)
	defer k.campaigns.Store(false)
	k.logWaiting(k.elector.GetLeader()) // it was seen before, and is no new one
	err := k.elector.Campaign(ctx)
	<-k.elector.Drained() // bounded by what the election's own elector does about a drain that outstays its limit
	k.mu.Lock()
	defer k.mu.Unlock()
	if failed := k.present.failed; errors.Is(err, k8sleaderelection.ErrStuckDrain) || failed != nil {
		return failed // functions have returned
	}
	return err
}

func (k *predecessorLock) logWaiting(holder string) {
	if holder != "" && holder != k8sresourcelock.Successors && holder != k.self {
		k.log.Info("waiting for the predecessor's lock", "holder", holder)
	}
}

// lead runs while the lock is kept, in the election's own term, which ends with what work returns before it is told to
// stop.
func (k *predecessorLock) lead(ctx context.Context) error {
	k.mu.Lock()
	present := k.present
	k.mu.Unlock()
	k.log.Info("the predecessor's lock is kept; run functions may start")
	err := k8sleaderelection.ErrGoexit // unless work returns
	defer func() {
		if err == nil || ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.present.failed = err
		present.end()
	}()
	err = k.work(k8sleaderelection.ContextWithTerm(ctx, present.term))
	select {
	case <-present.ended:
	default:
		if ctx.Err() != nil {
			k.log.Warn("the predecessor's lock was lost; run functions have been stopped")
		}
	}
	return err
}

// mayWork reports whether the predecessor's lock, if there is one, is kept now.
func (l *LeaderElection) mayWork() bool {
	k := l.predecessor.Load()
	return k == nil || k.elector.IsLeader()
}

// connectPredecessor makes what keeps the predecessor's lock.
func (l *LeaderElection) connectPredecessor(client kubernetes.Interface) error {
	k, err := newPredecessorLock(l.predecessorConfig(client), l.work, l.cfg.Logger.With("election", l.cfg.lockName()))
	if err != nil {
		return err
	}
	l.predecessor.Store(k)
	return nil
}

// observePredecessor has the predecessor's lock, if there is one, followed until end is called, or ctx ends.
func (l *LeaderElection) observePredecessor(ctx context.Context) (end func()) {
	if k := l.predecessor.Load(); k != nil {
		return k.observe(ctx)
	}
	return func() {}
}

// predecessorConfig configures the elector for the predecessor's lock.
func (l *LeaderElection) predecessorConfig(client kubernetes.Interface) k8sleaderelection.LeaderElectionConfig {
	p := *l.cfg.Predecessor
	if p.Namespace == "" {
		p.Namespace = l.cfg.Namespace
	}
	c := l.configOn(l.lockOn(client, metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, p.Lock, l.shared))
	c.Name, c.Gate = l.cfg.lockName()+" (predecessor)", l.gates.second()
	// The election's own lock is held meanwhile, so that no drain of its elector is under way: that one reports the
	// functions when its term has ended, and ends the process if it is to.
	c.OnStuckDrain = func() {
		l.cfg.Logger.Error("run functions did not return in time after the predecessor's lock was lost; stepping down",
			"election", l.cfg.lockName())
		l.StepDown()
	}
	return c
}

// knownDefault is the default revision as the watcher has it now.
func (l *LeaderElection) knownDefault() k8sleaderelection.DefaultRevision {
	if w := l.cfg.DefaultWatcher; w != nil && w.HasSynced() {
		return k8sleaderelection.DefaultRevision{Synced: true, Revision: w.GetDefault()}
	}
	return k8sleaderelection.DefaultRevision{}
}
