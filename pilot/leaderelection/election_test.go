package leaderelection

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// An election with each type of lock, from start to stop.
func TestElection(t *testing.T) {
	for _, kind := range []LockType{LockTypeConfigMap, LockTypeLease} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *lockServer) {
				before := s.candidate(t, "before", func(c *Config) { c.Lock = kind }).starts(t)
				passes(time.Second)
				before.Stop(t)
				a := s.candidate(t, "a", func(c *Config) { c.Lock, c.DefaultWatcher = kind, watcher("stable") })
				a.AddRunContext(a.work)
				cleanUp := false
				a.AddRunContext(func(ctx context.Context) error {
					<-ctx.Done()
					<-time.After(time.Second)
					cleanUp = a.admits(t)
					return nil
				})
				if a.IsLeader() || a.Live() || a.admits(t) {
					t.Error("leads before it runs")
				}
				a.starts(t)
				passes(10 * time.Second)
				if !a.IsLeader() || !a.Live() || !a.admits(t) {
					t.Fatalf("it does not lead: %+v", a.Status())
				}
				held := map[bool]string{true: "a"}
				if o, l := s.objects.Snapshot().Record.HolderIdentity, s.leases.Snapshot().Record.HolderIdentity; o != held[kind != LockTypeLease] || l != held[kind != LockTypeConfigMap] {
					t.Errorf("the ConfigMap is held by %q, the Lease by %q", o, l)
				}
				if holder, key := a.Leader(); holder != "a" || key != "stable" {
					t.Errorf("led by %q of %q", holder, key)
				}
				checkLeadersStatus(t, a.Status(), kind)
				if token := a.Status().Term.Token; token != a.token {
					t.Errorf("the run function has the token %d, the status %d", a.token, token)
				}
				if len(a.events) == 0 || a.log.Count("election="+locktest.Name) == 0 {
					t.Errorf("Events %v, log %s", a.events, &a.log)
				}
				if err := a.Quit(); err != nil || a.Live() || a.IsLeader() || a.admits(t) || !cleanUp {
					t.Errorf("it ended with %v; its function runs: %v, it leads: %v, a write at the end: %v", err, a.Live(), a.IsLeader(), cleanUp)
				}
				if o, l := s.objects.Snapshot().Record.HolderIdentity, s.leases.Snapshot().Record.HolderIdentity; o != "" || l != "" {
					t.Errorf("after the stop: the ConfigMap held by %q, the Lease by %q", o, l)
				}
				if st := a.Status(); st.Phase != "done" || st.Leading || st.ValidFor != 0 || st.Term.Token != 0 || st.Waiting {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func checkLeadersStatus(t *testing.T, got Status, kind LockType) {
	t.Helper()
	if got.ValidFor < playRenew-playRetry-time.Second || got.ValidFor > playRenew {
		t.Errorf("valid for %v", got.ValidFor)
	}
	if since := time.Since(got.Since); got.Term.Token == 0 || since < 5*time.Second || since > 10*time.Second {
		t.Errorf("token %d, since %v", got.Term.Token, since)
	}
	want := Status{
		ElectionID: locktest.Name, Namespace: locktest.Namespace, Lock: locktest.Name, LockType: kind,
		Identity: "a", Key: "stable", Validity: playRenew, Running: true, Warm: true, Ranked: true,
		Status: k8sleaderelection.Status{
			Phase: "leading", Reason: got.Reason, Since: got.Since, Leading: true, ValidFor: got.ValidFor, Term: got.Term, Known: true,
			Object: got.Object, Holder: "a", HolderKey: "stable", Transitions: 1, Acting: true,
			Default: k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true},
		},
	}
	if got != want || got.Reason == "" || got.Object == nil {
		t.Errorf("%+v,\nwant %+v", got, want)
	}
}

// The status of a follower.
func TestFollowerStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a").starts(t)
		passes(time.Second)
		b := s.candidate(t, "b")
		b.AddRunContext(b.work)
		b.AddFitnessCheck(func(context.Context) error { return errPlay })
		b.starts(t)
		passes(5 * time.Second)
		if st := b.Status(); st.Leading || st.ValidFor != 0 || st.Term.Token != 0 || !st.Unfit || st.Holder != "a" || st.Phase != "following" || st.Default.Synced || st.Waiting {
			t.Errorf("%+v", st)
		}
		if st := a.Status(); st.Unfit || !st.Leading {
			t.Errorf("%+v", st)
		}
		if holder, _ := b.Leader(); holder != "a" || b.IsLeader() {
			t.Errorf("led by %q", holder)
		}
		// After StepDown the leader releases the lock, and other candidates acquire it.
		c := s.candidate(t, "c").starts(t)
		passes(time.Second)
		a.StepDown()
		passes(time.Second)
		if a.IsLeader() || !c.IsLeader() || b.Live() {
			t.Errorf("after a step down a leads: %v, c: %v, b: %v", a.IsLeader(), c.IsLeader(), b.IsLeader())
		}
		for _, x := range []*candidate{a, b, c} {
			x.Stop(t)
		}
	})
}

// RunContext runs once at a time, starts with the warm-up functions, and can be called again.
func TestRunContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a")
		a.AddRunContext(a.work)
		warmed, warm := make(chan struct{}), errors.New("no cache")
		fails := false
		a.AddWarmup(func(ctx context.Context) error {
			if fails {
				return warm
			}
			select {
			case <-warmed:
			case <-ctx.Done():
			}
			return nil
		})
		a.starts(t)
		passes(time.Minute)
		if s.leases.Version() != 0 && len(s.leases.Counts()) > 0 || a.Live() {
			t.Errorf("campaigns before the warm-up has ended: %v", s.leases.Counts())
		}
		if err := a.RunContext(t.Context()); !errors.Is(err, k8sleaderelection.ErrRunning) || !strings.Contains(err.Error(), `election "`+locktest.Name+`"`) {
			t.Errorf("a second concurrent run: %v", err)
		}
		if err := a.Quit(); err != nil || len(s.leases.Counts()) > 0 {
			t.Errorf("ended during the warm-up: %v, %v", err, s.leases.Counts())
		}
		close(warmed)
		a.starts(t)
		passes(5 * time.Second)
		if !a.Live() {
			t.Error("does not lead after the warm-up")
		}
		if err := a.RunContext(t.Context()); !errors.Is(err, k8sleaderelection.ErrRunning) {
			t.Errorf("a second concurrent run: %v", err)
		}
		a.Stop(t)
		fails = true
		if err := a.RunContext(t.Context()); !errors.Is(err, warm) || !strings.Contains(err.Error(), `election "`+locktest.Name+`": warm up: `) {
			t.Errorf("failed warm-up: %v", err)
		}
		fails = false
		a.starts(t)
		passes(5 * time.Second)
		if !a.Live() || len(a.Spans()) != 2 {
			t.Errorf("it does not lead again: %d terms", len(a.Spans()))
		}
		a.Stop(t)
	})
}

// A run waits for run functions of an earlier run.
func TestRunContext_AfterStuckFunctions(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a", func(c *Config) { c.StopLimit = time.Second })
		release, runs := make(chan struct{}), 0
		a.AddRunContext(func(context.Context) error { runs++; <-release; return nil })
		a.starts(t)
		passes(5 * time.Second)
		if err := a.Quit(); !errors.Is(err, k8sleaderelection.ErrStuckDrain) {
			t.Fatalf("it ended with %v", err)
		}
		a.starts(t)
		passes(time.Minute)
		if runs != 1 || a.IsLeader() || a.log.Count("waiting for run functions of an earlier run") != 1 {
			t.Errorf("%d runs while a function of an earlier run is active:\n%s", runs, &a.log)
		}
		if err := a.Quit(); !errors.Is(err, k8sleaderelection.ErrStuckDrain) || !strings.Contains(err.Error(), `election "`+locktest.Name+`"`) {
			t.Errorf("ended while it waited: %v", err)
		}
		a.starts(t)
		passes(5 * time.Second)
		close(release)
		passes(time.Minute)
		if runs != 2 || !a.IsLeader() {
			t.Errorf("%d runs after the function has returned", runs)
		}
		a.Stop(t)
	})
}

// A disabled election runs its functions immediately, without a lock.
func TestDisabled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a", func(c *Config) { c.Disabled = true })
		a.AddRunContext(a.work).AddRunContext(func(context.Context) error { return nil })
		if a.IsLeader() || a.Status().Phase != "disabled" || a.Status().Leading {
			t.Errorf("before it runs: %+v", a.Status())
		}
		a.starts(t)
		passes(time.Minute)
		if !a.Live() || !a.IsLeader() || !a.Status().Leading || a.Status().Phase != "disabled" || len(s.leases.Counts()) > 0 {
			t.Errorf("%+v, requests %v", a.Status(), s.leases.Counts())
		}
		if err := a.Quit(); err != nil || a.Live() || a.IsLeader() || a.Status().Leading {
			t.Errorf("ended with %v; it leads: %v", err, a.IsLeader())
		}
		done := s.candidate(t, "b", func(c *Config) { c.Disabled = true })
		done.AddRunContext(func(context.Context) error { return nil })
		done.starts(t)
		passes(time.Minute)
		if !done.IsLeader() {
			t.Error("a disabled election ended when its function returned")
		}
		done.Stop(t)
		wrong := s.candidate(t, "c", func(c *Config) { c.Disabled = true })
		wrong.AddRunContext(func(context.Context) error { return errPlay })
		if err := wrong.RunContext(t.Context()); !errors.Is(err, errPlay) || wrong.IsLeader() {
			t.Errorf("its function failed: %v", err)
		}
	})
}

// Run returns when stop is closed or after an error, which it logs.
func TestRun(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a")
		a.AddRunContext(a.work)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); a.Run(stop) }()
		passes(5 * time.Second)
		if !a.Live() {
			t.Error("it does not lead")
		}
		close(stop)
		<-ended
		if a.Live() || a.log.Count("ended with an error") != 0 {
			t.Errorf("%s", &a.log)
		}
		a.AddWarmup(func(context.Context) error { return errPlay })
		a.Run(make(chan struct{}))
		if a.log.Count("election ended with an error") != 1 || a.log.Count(errPlay.Error()) != 1 {
			t.Errorf("%s", &a.log)
		}
	})
}

// An error in one election of a set stops the others, and is returned.
func TestSet(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		set := NewSet()
		a := s.candidate(t, "a")
		a.AddRunContext(a.work)
		warmed := make(chan struct{})
		b := s.candidate(t, "b", func(c *Config) { c.ElectionID, c.Lock = "other", LockTypeConfigMap })
		b.AddWarmup(func(context.Context) error { <-warmed; return errPlay })
		off := s.candidate(t, "c", func(c *Config) { c.Disabled = true })
		off.AddRunContext(off.work)
		for _, one := range []*candidate{b, off, a} {
			set.Add(one.LeaderElection)
		}
		if all := set.All(); len(all) != 3 || all[0] != b.LeaderElection || all[2] != a.LeaderElection {
			t.Errorf("%v", all)
		}
		set.All()[0] = nil
		if set.All()[0] == nil {
			t.Error("All returns the internal slice")
		}
		ended := make(chan error, 1)
		go func() { ended <- set.RunContext(t.Context()) }()
		passes(5 * time.Second)
		if !a.Live() || !off.Live() || len(ended) > 0 {
			t.Error("a candidate in its warm-up keeps another from leading")
		}
		close(warmed)
		if err := <-ended; !errors.Is(err, errPlay) || a.Live() || off.Live() {
			t.Errorf("ended with %v; functions run: %v, %v", err, a.Live(), off.Live())
		}
		ctx, cancel := context.WithCancel(t.Context())
		one := NewSet()
		one.Add(a.LeaderElection)
		go func() { ended <- one.RunContext(ctx) }()
		passes(5 * time.Second)
		cancel()
		if err := <-ended; err != nil || len(a.Spans()) != 2 {
			t.Errorf("stopped: %v, after %d terms", err, len(a.Spans()))
		}
		both := NewSet()
		for _, name := range []string{"d", "e"} {
			both.Add(newElection(unreachable(t), Config{ElectionID: name})) // without a namespace
		}
		if err := both.RunContext(t.Context()); err == nil || !strings.Contains(err.Error(), `election "d" in`) || !strings.Contains(err.Error(), `election "e" in`) {
			t.Errorf("two invalid elections: %v", err)
		}
		if err := NewSet().RunContext(ctx); err != nil {
			t.Errorf("an empty set: %v", err)
		}
	})
}
