package leaderelection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

// RunContext takes part in the election until ctx ends, term after term. It returns
// once everything it started has ended: the run functions, and then the lock given up.
// It returns nil after an orderly end. Otherwise the error is that of wrong arguments, of a
// warm function, or of run functions that failed in the last term. errors.Is finds ErrRunning
// where the election is running already, and k8sleaderelection.ErrStuckDrain where run
// functions did not return in time and are still running.
func (l *LeaderElection) RunContext(ctx context.Context) error {
	if err := l.begin(); err != nil {
		return err
	}
	err := l.takePart(ctx)
	l.running.Store(false)
	return err
}

func (l *LeaderElection) takePart(ctx context.Context) error {
	if err := l.warmUp(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	l.warmed.Store(true)
	if err := l.awaitDrained(ctx); err != nil {
		return err
	}
	if l.cfg.Disabled {
		return l.bypass(ctx)
	}
	release, err := l.prepare(ctx)
	if err != nil {
		return l.wrap(err)
	}
	defer release()
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
		return l.wrap(ErrRunning)
	}
	l.warmed.Store(false)
	return nil
}

// awaitDrained waits for run functions that an earlier run has left behind.
func (l *LeaderElection) awaitDrained(ctx context.Context) error {
	drained := l.elector.Load().Drained()
	select {
	case <-drained:
		return nil
	default:
	}
	l.cfg.Logger.Warn("waiting for run functions of an earlier run to return", "election", l.cfg.lockName())
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return l.wrap(k8sleaderelection.ErrStuckDrain)
	}
}

// bypass runs the functions when elections are off. As in a term, a function that is done
// leaves the process leading.
func (l *LeaderElection) bypass(ctx context.Context) error {
	l.cfg.Logger.Info("leader election is disabled: run functions start at once", "election", l.cfg.lockName())
	if err := l.workSideBySide(ctx); err != nil { // one that ends its goroutine must not end this one
		return err
	}
	<-ctx.Done()
	return nil
}

func (l *LeaderElection) wrap(err error) error {
	return fmt.Errorf("election %q: %w", l.cfg.lockName(), err)
}

// Run is RunContext with a stop channel in place of a context; an error is logged.
func (l *LeaderElection) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	returned := make(chan struct{})
	var relay sync.WaitGroup
	relay.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-returned:
		}
	})
	defer relay.Wait()
	defer close(returned)
	if err := l.RunContext(ctx); err != nil {
		l.cfg.Logger.Error("the election ended with an error", "election", l.cfg.lockName(), "err", err)
	}
}

func (l *LeaderElection) warmUp(ctx context.Context) error {
	l.mu.Lock()
	functions := append([]func(context.Context) error{}, l.warm...)
	l.mu.Unlock()
	if err := runAll(ctx, functions); err != nil {
		return fmt.Errorf("election %q: warming up: %w", l.cfg.lockName(), err)
	}
	return nil
}

// prepare connects the elector to what it needs. release gives that back.
func (l *LeaderElection) prepare(ctx context.Context) (release func(), err error) {
	lockClient, release := l.cfg.LockClient, func() {}
	if lockClient == nil {
		own, err := l.registry.acquire(l.client)
		if err != nil {
			return nil, err
		}
		lockClient, l.shared, release = own.client.Kube(), own.locks, own.release
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
	unfollow, releaseShared := l.followDefault(), release
	return func() { unpublish(); unfollow(); releaseShared() }, nil
}

// followDefault has the elector ask for the default revision whenever it may have changed, from now on. unfollow ends
// what that takes.
func (l *LeaderElection) followDefault() (unfollow func()) {
	watcher := l.cfg.DefaultWatcher
	if watcher == nil || l.cfg.PerRevision && l.cfg.Predecessor == nil {
		return func() {}
	}
	if w, ok := watcher.(revisions.Subscribable); ok {
		return w.Subscribe(func(string) { l.reconsider() })
	}
	if l.follow == nil {
		l.follow = l.handle(watcher)
	}
	return l.follow()
}

// handle gives a watcher our handler for good, and says what else each run has to do. Doubles that tests bring from
// istiod, whose elections ask instead of being told, panic here: those are asked.
func (l *LeaderElection) handle(watcher revisions.DefaultWatcher) (follow func() (unfollow func())) {
	defer func() {
		if p := recover(); p != nil {
			l.cfg.Logger.Warn("the watcher of the default revision takes no handlers: asking it once per RetryPeriod",
				"election", l.cfg.lockName(), "panic", p)
			follow = l.pollDefault
		}
	}()
	watcher.AddHandler(func(string) { l.reconsider() })
	return func() func() { return func() {} }
}

// pollDefault asks the watcher until end is called.
func (l *LeaderElection) pollDefault() (end func()) {
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		ticker := time.NewTicker(l.cfg.RetryPeriod)
		defer ticker.Stop()
		for last := l.knownDefault(); ; {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if d := l.knownDefault(); d != last {
				last = d
				l.reconsider()
			}
		}
	})
	return func() {
		close(ended)
		asking.Wait()
	}
}

// reconsider has the electors ask for the default revision again: what a handler was told can be older than what it is now.
func (l *LeaderElection) reconsider() {
	l.elector.Load().Refresh()
	l.predecessor.refresh()
}

// Set is a process's part in several elections. Those of one client share what their locks need: a connection, a bound
// on the calls made at once, and a watch of the Leases of each namespace.
type Set struct {
	registry registry

	mu  sync.Mutex
	all []*LeaderElection
}

// NewSet makes an empty set.
func NewSet() *Set { return &Set{} }

// Add puts an election into the set. Add all before the set runs.
func (s *Set) Add(l *LeaderElection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.sharing {
		l.registry = &s.registry
	}
	s.all = append(s.all, l)
}

// All returns the elections of the set.
func (s *Set) All() []*LeaderElection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*LeaderElection{}, s.all...)
}

// RunContext runs all elections of the set and returns when all have ended. One that
// ends with an error ends the others, in order: a process that silently lacks one of
// its elections would not do its work. The error collects theirs.
func (s *Set) RunContext(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs *multierror.Error
	)
	for _, l := range s.All() {
		all.Go(func() {
			if err := l.RunContext(ctx); err != nil {
				mu.Lock()
				errs = multierror.Append(errs, err)
				mu.Unlock()
				cancel()
			}
		})
	}
	all.Wait()
	return errlist.Error(errs)
}
