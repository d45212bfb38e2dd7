package leaderelection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

// RunContext takes part in the election until ctx ends, for any number of terms. It returns after the run
// functions have returned and the lock was released. It returns nil after an orderly stop. Otherwise it
// returns the error of an invalid Config, of a warm-up function, or of the run functions in the last term.
// The error wraps k8sleaderelection.ErrRunning if the election is already running, and k8sleaderelection.ErrStuckDrain if run
// functions did not return in time.
func (l *LeaderElection) RunContext(ctx context.Context) error {
	err := l.runUntil(ctx)
	l.hooks.Wait(l.cfg.RetryPeriod)
	return err
}

// runUntil is RunContext, which waits for log entries.
func (l *LeaderElection) runUntil(ctx context.Context) error {
	if err := l.begin(); err != nil {
		return err
	}
	err := l.takePart(ctx)
	l.running.Store(false)
	return err
}

func (l *LeaderElection) takePart(ctx context.Context) error {
	defer l.label.start(ctx)()
	if err := l.warmUp(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	l.warmed.Store(true)
	if l.elector.Load().AwaitDrained(ctx) != nil {
		return l.wrap(k8sleaderelection.ErrStuckDrain)
	}
	if l.cfg.Disabled {
		return l.runDisabled(ctx)
	}
	release, err := l.prepare(ctx)
	if err != nil {
		return l.wrap(err)
	}
	defer release()
	if h := l.held.Load(); h != nil {
		return h.run(ctx)
	}
	if err := l.awaitPredecessor(ctx, l.lockClient); err != nil {
		return l.wrap(err)
	}
	return l.elector.Load().Campaign(ctx)
}

func (l *LeaderElection) begin() error {
	if l.invalid != nil {
		return l.invalid
	}
	if !l.running.CompareAndSwap(false, true) {
		return l.wrap(k8sleaderelection.ErrRunning)
	}
	l.warmed.Store(false)
	return nil
}

// runDisabled runs the run functions without an election, until ctx ends.
func (l *LeaderElection) runDisabled(ctx context.Context) error {
	l.log.Info("leader election is disabled; starting run functions", "election", l.cfg.lockName())
	if err := runAll(ctx, l.runFunctions()); err != nil { // runtime.Goexit in a function must not end this goroutine
		return err
	}
	<-ctx.Done()
	return nil
}

func (l *LeaderElection) wrap(err error) error {
	return fmt.Errorf("election %q: %w", l.cfg.lockName(), err)
}

// Run runs the election until stop is closed, as RunContext does. It logs an error.
func (l *LeaderElection) Run(stop <-chan struct{}) {
	if err := l.runUntil(wait.ContextForChannel(stop)); err != nil {
		l.log.Error("election ended with an error", "election", l.cfg.lockName(), "err", err)
	}
	l.hooks.Wait(l.cfg.RetryPeriod)
}

func (l *LeaderElection) warmUp(ctx context.Context) error {
	l.mu.Lock()
	functions := slices.Clone(l.warmups)
	l.mu.Unlock()
	if err := runAll(ctx, functions); err != nil {
		return fmt.Errorf("election %q: warm up: %w", l.cfg.lockName(), err)
	}
	return nil
}

// prepare connects the elector to clients and watches. release releases them.
func (l *LeaderElection) prepare(ctx context.Context) (release func(), err error) {
	lockClient := l.cfg.LockClient
	release = func() {}
	if lockClient == nil {
		own, err := global.acquire(l.client)
		if err != nil {
			return nil, err
		}
		lockClient = own.client.Kube()
		l.shared = own.locks
		release = own.release
		if l.sharing {
			l.cfg.DefaultWatcher = own.defaultWatcher()
		}
	}
	l.lockClient = lockClient
	if err := l.connect(lockClient); err != nil {
		release()
		return nil, err
	}
	unpublish, err := l.publish(ctx, lockClient)
	if err != nil {
		release()
		return nil, err
	}
	unfollow := l.followDefault()
	releaseShared := release
	return func() {
		unpublish()
		unfollow()
		releaseShared()
	}, nil
}

// followDefault refreshes the elector when the default revision changes, until unfollow is called.
func (l *LeaderElection) followDefault() (unfollow func()) {
	watcher := l.cfg.DefaultWatcher
	if watcher == nil || l.cfg.PerRevision && l.cfg.Predecessor == nil {
		return func() {}
	}
	// The watchers of package revisions have this method.
	if w, ok := watcher.(interface {
		Subscribe(handler revisions.DefaultHandler) (unsubscribe func())
	}); ok {
		return w.Subscribe(func(string) { l.refresh() })
	}
	l.followOnce.Do(func() { watcher.AddHandler(func(string) { l.refresh() }) })
	return func() {}
}

// refresh makes the electors read the default revision again. The value in a handler call can be outdated.
func (l *LeaderElection) refresh() {
	l.elector.Load().Refresh()
	l.predecessor.refresh()
}

// Set is a group of elections of one process, which run and stop together.
type Set struct {
	mu  sync.Mutex
	all []*LeaderElection
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{} }

// Add adds an election to the set. Add all elections before the set runs.
func (s *Set) Add(l *LeaderElection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, l)
}

// All returns the elections of the set.
func (s *Set) All() []*LeaderElection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// RunContext runs all elections of the set and returns when all have ended. If one of them ends with an error,
// the others stop, because a process without one of its elections is not complete. The error contains the
// errors of all elections.
func (s *Set) RunContext(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all multierror.Group
	for _, l := range s.All() {
		all.Go(func() error {
			err := l.RunContext(ctx)
			if err != nil {
				cancel()
			}
			return err
		})
	}
	return errlist.Error(all.Wait())
}
