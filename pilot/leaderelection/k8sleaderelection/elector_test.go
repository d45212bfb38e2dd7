package k8sleaderelection_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestElectorDrainsBeforeRelease(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a, b := startTwo(t, store)
		if !a.Live() || !a.IsLeader() || b.Live() || b.GetLeader() != "a" {
			t.Fatalf("a runs %v, b runs %v, b sees leader %q", a.Live(), b.Live(), b.GetLeader())
		}
		a.drain.Store(int64(3 * time.Second))
		a.Stop(t)
		advance(time.Second)
		if !b.Live() || stored(store).HolderIdentity != "b" {
			t.Fatalf("b does not lead; record %+v", stored(store))
		}
		if gap := b.Last().From.Sub(a.Last().To); gap != 0 {
			t.Errorf("b started %v after a's function returned", gap)
		}
	})
}

func TestElectorRequestRate(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a := startCandidate(t, store, "a")
		advance(time.Second)
		b := startCandidate(t, store, "b")
		slow := apiserver.Fault{Before: time.Second, After: time.Second}
		a.lock.On(func(apiserver.Request) apiserver.Fault { return slow }) // RetryPeriod counts from the time of sending
		advance(time.Minute)
		beforeA := total(a.lock.Counts())
		beforeB := total(b.lock.Counts())
		advance(3 * time.Minute) // the server ends watches after five
		if got := total(b.lock.Counts()) - beforeB; got != 0 {
			t.Errorf("the follower sent %d requests in 3 minutes: %v", got, b.lock.Counts())
		}
		if got := total(a.lock.Counts()) - beforeA; got != 24 {
			t.Errorf("the leader sent %d requests in 3 minutes, want 24: %v", got, a.lock.Counts())
		}
	})
}

// deadFirst is a lock whose first attempts get no answer, as on a dead connection. The API server executes the first of these writes
// if stored is set.
type deadFirst struct {
	k8sresourcelock.Lock
	stored *atomic.Bool
}

func (d deadFirst) dead(ctx context.Context) error {
	if apirequest.IsSecond(ctx) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d deadFirst) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	if err := d.dead(ctx); err != nil {
		return k8sresourcelock.Snapshot{}, err
	}
	return d.Lock.Read(ctx)
}

func (d deadFirst) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	if !apirequest.IsSecond(ctx) && d.stored.Swap(false) {
		_, _ = d.Lock.Write(ctx, base, r, notes)
	}
	if err := d.dead(ctx); err != nil {
		return k8sresourcelock.Snapshot{}, err
	}
	return d.Lock.Write(ctx, base, r, notes)
}

// Neither an API server that is slow nor dead connections cost a term, with and without a watch.
func TestElectorSlow(t *testing.T) {
	late := func(d time.Duration) func(*candidate, k8sresourcelock.Lock) k8sresourcelock.Lock {
		return func(c *candidate, lock k8sresourcelock.Lock) k8sresourcelock.Lock {
			c.lock.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{After: d} })
			return lock
		}
	}
	for name, test := range map[string]struct {
		lock  func(*candidate, k8sresourcelock.Lock) k8sresourcelock.Lock
		first time.Duration // until the first term
	}{
		"4 s":   {late(4 * time.Second), 8 * time.Second},
		"7.4 s": {late(7400 * time.Millisecond), 14800 * time.Millisecond},
		"dead": {func(_ *candidate, lock k8sresourcelock.Lock) k8sresourcelock.Lock {
			return deadFirst{lock, &atomic.Bool{}}
		}, time.Second},
		"dead after the acquisition": {func(_ *candidate, lock k8sresourcelock.Lock) k8sresourcelock.Lock {
			stored := &atomic.Bool{}
			stored.Store(true)
			return deadFirst{lock, stored}
		}, 3 * time.Second},
	} {
		for _, watched := range []bool{true, false} {
			onLeases(t, func(t *testing.T, store *locktest.Store) {
				c := prepareKey(t, store, "a", "stable")
				lock := c.lock.Lock
				if !watched {
					lock = c.lock.Unwatched()
				}
				c = prepare(t, store, "a", func(config *le.LeaderElectionConfig) { config.Lock = test.lock(c, lock) })
				c.start(t)
				advance(test.first + retry/2)
				advance(3 * time.Minute)
				spans := c.Spans()
				if len(spans) != 1 || !spans.Live() || !c.IsLeader() {
					t.Fatalf("%s, watched %v: %d terms, leads %v:\n%s", name, watched, len(spans), c.IsLeader(), c.log.String())
				}
				if time.Since(spans[0].From) < 3*time.Minute+retry/2 {
					t.Errorf("%s, watched %v: the term began too late", name, watched)
				}
			})
		}
	}
}

// If answers need more than half of RenewDeadline, no term begins, and the log has latency and limit once. The term begins with the
// first answer that is in time.
func TestElectorSlow_AboveLimit(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		slow := prepareKey(t, store, "a", "stable").lock
		slow.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{After: 8 * time.Second} })
		c := prepare(t, store, "a", func(config *le.LeaderElectionConfig) {
			config.Lock = slow.Unwatched() // a watch may show a write earlier than its answer
		})
		c.start(t)
		advance(5 * time.Minute)
		if log := c.log.String(); len(c.Spans()) != 0 || strings.Count(log, "answers too late") != 1 || !strings.Contains(log, "latency=8s limit=7.5s") {
			t.Errorf("%d terms:\n%s", len(c.Spans()), log)
		}
		slow.On(nil)
		if advance(9 * time.Second); !c.IsLeader() {
			t.Errorf("no term after the API server is fast again:\n%s", c.log.String())
		}
	})
}

// A second Run or Campaign of a running elector returns immediately and does not affect the first.
func TestRun_Concurrent(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		stopped := 0
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnStoppedLeading = func() { stopped++ }
		})
		for range 2 { // an elector can run again
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); c.Run(ctx) }()
			advance(time.Minute)
			c.Run(ctx)
			if err := c.Campaign(ctx); !errors.Is(err, le.ErrRunning) || stopped != 0 || !c.IsLeader() {
				t.Errorf("Campaign returned %v, OnStoppedLeading calls: %d, leads %v", err, stopped, c.IsLeader())
			}
			cancel()
			<-done
			if stopped != 1 || c.IsLeader() {
				t.Errorf("OnStoppedLeading calls: %d, leads %v", stopped, c.IsLeader())
			}
			stopped = 0
		}
		if n := c.log.Count("level=ERROR"); n != 2 || c.log.Count("already running") != 2 {
			t.Errorf("errors logged: %d\n%s", n, c.log.String())
		}
	})
}

func TestRunOrDie(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for an invalid configuration")
		}
	}()
	le.RunOrDie(t.Context(), le.LeaderElectionConfig{})
}

// Run starts no functions while functions of an earlier run have not returned. Otherwise the gate would admit their writes.
func TestRun_StuckFunctions(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		release := make(chan struct{})
		started := 0
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.RunFunctions = []func(context.Context) error{func(context.Context) error { started++; <-release; return nil }}
		})
		run := func() (stop func(), done chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			done = make(chan struct{})
			go func() { defer close(done); c.Run(ctx) }()
			return cancel, done
		}
		_, done := run()
		advance(time.Minute)
		c.disconnect(true)
		advance(2 * lease)
		<-done // the term is lost, the function does not return
		c.disconnect(false)
		stop, done := run()
		advance(time.Minute)
		if started != 1 || c.IsLeader() {
			t.Fatalf("functions started: %d; leads %v", started, c.IsLeader())
		}
		stop()
		<-done
		stop, done = run()
		advance(time.Minute)
		close(release)
		advance(time.Minute)
		if started != 2 {
			t.Errorf("functions started: %d", started)
		}
		stop()
		<-done
	})
}

// stuckEnv selects the process that does not return from its run function.
const stuckEnv = "INCUMBENT_TEST_STUCK"

func TestExitOnStuckDrain(t *testing.T) {
	if os.Getenv(stuckEnv) != "" {
		runStuck(t)
		os.Exit(0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	self := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
	self.Env = append(os.Environ(), stuckEnv+"=yes")
	out, err := self.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || bytes.Contains(out, []byte("FAIL")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func runStuck(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	elector, err := le.NewLeaderElector(le.LeaderElectionConfig{
		Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Lock, ReleaseOnCancel: true,
		LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 5 * time.Second,
		StopLimit: 50 * time.Millisecond, ExitOnStuckDrain: true,
		RunFunctions: []func(context.Context) error{func(context.Context) error {
			stop()
			select {}
		}},
	})
	harness.Must(t, err)
	t.Log(elector.Campaign(ctx))
}

// A failed function ends its term. Campaign starts another term and returns only errors of the last one.
func TestCampaignTerms(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		stopped := 0
		var a *candidate
		a = prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnStoppedLeading = func() {
				if stopped++; a.Live() {
					t.Error("OnStoppedLeading was called before the function returned")
				}
			}
		})
		a.drain.Store(int64(time.Second))
		a.start(t)
		advance(time.Minute)
		a.fail <- errors.New("no database")
		advance(10 * time.Minute)
		a.StepDown()
		advance(10 * time.Minute)
		if !a.Live() || len(a.Spans()) != 3 || stopped != 2 || a.Status().Term.Transitions != 2 || stored(store).LeaderTransitions != 2 {
			t.Errorf("runs %v in term %d, OnStoppedLeading calls: %d", a.Live(), len(a.Spans()), stopped)
		}
		last := errors.New("no disk")
		a.fail <- last
		advance(time.Second)
		if err := a.Quit(); !errors.Is(err, last) || stopped != 3 || strings.Contains(err.Error(), "no database") || a.log.Count("waiting for run functions") > 0 {
			t.Errorf("%v, OnStoppedLeading calls: %d\n%s", err, stopped, a.log.String())
		}
	})
}

// panicking is a Witness that panics at the second registration.
type panicking struct{ calls int }

func (p *panicking) Register(le.WitnessedTerm) {
	if p.calls++; p.calls > 1 {
		panic("no witness")
	}
}

func (*panicking) Remove(le.WitnessedTerm) {}

// If a caller recovers from the panic of a Witness, the functions are stopped and the gate is closed.
func TestPanicEndsTerm(t *testing.T) {
	for name, gate := range map[string]*testGate{"gate": {}, "no gate": nil} {
		synctest.Test(t, func(t *testing.T) {
			a := prepare(t, locktest.NewStore(locktest.Lease), "a", func(c *le.LeaderElectionConfig) {
				c.Witness = &panicking{}
				if gate != nil {
					c.Gate = gate
				}
			})
			leads := false
			recovered := make(chan any)
			go func() {
				defer func() {
					leads = gate != nil && gate.open || a.IsLeader()
					recovered <- recover()
				}()
				_ = a.Campaign(t.Context())
			}()
			for len(a.Spans()) == 0 {
				advance(time.Second)
			}
			if p := <-recovered; p != "no witness" || leads {
				t.Errorf("%s: recovered %v, leads %v", name, p, leads)
			}
			if synctest.Wait(); a.Live() {
				t.Errorf("%s: the function did not stop", name)
			}
			if err := a.Campaign(t.Context()); !errors.Is(err, le.ErrRunning) {
				t.Errorf("%s: next run: %v", name, err)
			}
		})
	}
}

type testGate struct {
	mu     sync.Mutex
	open   bool
	term   le.Term
	drains int
}

func (g *testGate) Set(term le.Term, end le.Validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = end != le.Validity{}
	g.term = term
}

func (g *testGate) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drains++
}

func (g *testGate) wants(t *testing.T, open bool, drains int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != open || g.drains != drains || open != (g.term != le.Term{}) {
		t.Errorf("open %v in term %+v, drained %d times; want %v, %d", g.open, g.term, g.drains, open, drains)
	}
}

func TestGateFollowsTerm(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(*locktest.Store, *apiserver.Client)
		after time.Duration
	}{
		"overwritten":      {func(store *locktest.Store, _ *apiserver.Client) { putHolder(store, "x") }, time.Second},
		"deleted":          {func(store *locktest.Store, _ *apiserver.Client) { store.Delete() }, time.Second},
		"writes forbidden": {func(_ *locktest.Store, a *apiserver.Client) { a.Forbid(locktest.Update) }, lease},
	} {
		t.Run(name, func(t *testing.T) {
			onConfigMap(t, func(t *testing.T, store *locktest.Store) {
				g := &testGate{}
				a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Gate = g })
				advance(time.Second)
				g.wants(t, true, 0)
				a.lock.Client.Forbid(locktest.Create) // no second term
				c.lose(store, a.lock.Client)
				advance(c.after)
				g.wants(t, false, 1)
			})
		})
	}
}

// slowGate needs a time to answer the last writes.
type slowGate struct {
	testGate
	takes time.Duration
}

func (g *slowGate) Drain() {
	after(g.takes)
	g.testGate.Drain()
}

// The lock is kept until the writes of the term were answered.
func TestRelease_AwaitsWrites(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Gate = &slowGate{takes: 3 * time.Second} })
		advance(time.Second)
		a.Cancel()
		if advance(time.Second); a.Live() || stored(store).HolderIdentity != "a" {
			t.Errorf("the function runs %v, the holder is %q while a write is pending", a.Live(), stored(store).HolderIdentity)
		}
		if advance(2 * time.Second); stored(store).HolderIdentity != "" {
			t.Errorf("the lock is not released; record %+v", stored(store))
		}
	})
}

// The runtime shrinks the stack of a goroutine only while it uses less than a quarter of it. An elector waits with little of it in
// use, although a step needs much.
func TestElector_StackWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		startCandidate(t, store, "leader")
		advance(time.Second)
		const followers = 64
		before := stacks()
		for i := range followers {
			startCandidate(t, store, "follower-"+strconv.Itoa(i))
		}
		advance(time.Minute)
		// 25 KiB (with the race detector 30) for the elector, its watch and the test; 10 more if the elector keeps its largest stack.
		if each := (stacks() - before) / followers; each > 32<<10 {
			t.Errorf("the goroutines of a follower have stacks of %d bytes", each)
		}
	})
}

// stacks returns the bytes of all stacks after they were shrunk. Each collection halves them at most.
func stacks() uint64 {
	for range 6 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}
