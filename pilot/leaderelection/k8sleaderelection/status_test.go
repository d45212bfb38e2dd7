package k8sleaderelection_test

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestStatus(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.DrainLimit = 3 * time.Second })
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		if s := a.Status(); s.Phase != "following" || s.Leading || s.Known {
			t.Errorf("before it runs: %+v", s)
		}
		began := time.Now()
		a.start(t)
		advance(time.Second)
		s := a.Status()
		r := stored(store)
		want := le.Term{LockUID: string(store.Snapshot().UID), Transitions: r.LeaderTransitions, Token: store.History()[0].Version}
		if s.Phase != "leading" || s.Reason == "" || s.Since.Before(began) || !s.Leading || !s.Known || s.ValidFor > renew || s.ValidFor < renew-time.Second ||
			s.Term != want || s.Holder != "a" || s.HolderKey != "stable" || s.Transitions != r.LeaderTransitions || s.Unfit ||
			s.Default != (le.DefaultRevision{Synced: true, Revision: "stable"}) || a.GetLeader() != "a" {
			t.Errorf("%+v", s)
		}
		a.Stop(t)
		if s := a.Status(); s.Leading || s.ValidFor != 0 || s.Phase != "done" || s.Holder != "" {
			t.Errorf("after the end: %+v", s)
		}
	})
}

// After a suspend, timers of the Go runtime fire late. The first reading of the clock wakes the loop.
func TestFirstReadingAfterSuspend(t *testing.T) {
	for name, read := range map[string]func(*candidate, *le.Clock){
		"gate":     func(_ *candidate, clock *le.Clock) { clock.Now() },
		"IsLeader": func(c *candidate, _ *le.Clock) { c.IsLeader() },
		"Status":   func(c *candidate, _ *le.Clock) { c.Status() },
	} {
		t.Run(name, func(t *testing.T) {
			onConfigMap(t, func(t *testing.T, store *locktest.Store) {
				epoch := time.Now()
				slept := time.Duration(0)
				clock := le.NewClock(func() int64 { return int64(time.Since(epoch) + slept) })
				c := startCandidate(t, store, "a", func(config *le.LeaderElectionConfig) { config.Clock = clock })
				advance(time.Second)
				if !c.Live() {
					t.Fatal("a does not lead")
				}
				slept = 20 * time.Second
				read(c, clock)
				if advance(time.Nanosecond); len(c.Spans()) != 2 {
					t.Errorf("the function was not stopped\n%s", c.log.String())
				}
			})
		})
	}
}

// The elector calls DefaultRevision at its start and on Refresh. A result that is not synced changes nothing.
func TestRefreshDefaultRevision(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.Ranked = true })
		want := func(when, revision string) {
			t.Helper()
			advance(time.Second)
			if s := a.Status(); s.Default != (le.DefaultRevision{Synced: revision != "", Revision: revision}) {
				t.Errorf("%s: %+v", when, s.Default)
			}
		}
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
		want("before the start", "")
		a.defaultRevision.Store(&le.DefaultRevision{Synced: true, Revision: "stable"})
		a.start(t)
		want("after the start", "stable")
		a.defaultRevision.Store(&le.DefaultRevision{Synced: true, Revision: "canary"})
		want("before Refresh", "stable")
		for range 3 {
			go a.Refresh()
		}
		want("after Refresh", "canary")
		a.setDefaultRevision(le.DefaultRevision{})
		want("not synced", "canary")
		a.Stop(t)
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		want("after the end", "canary")
	})
}

// HandoverWait is set while a handover is pending, for the leader and the challenger.
func TestStatusHandoverWait(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a := startRanked(t, store, "a", "stable", "stable")
		advance(time.Second)
		b := startRanked(t, store, "b", "canary", "stable")
		advance(time.Minute)
		want := func(when string, wantA, wantB time.Duration) {
			t.Helper()
			if gotA, gotB := a.Status().HandoverWait, b.Status().HandoverWait; gotA != wantA || gotB != wantB {
				t.Errorf("%s: a %v, b %v, want %v, %v", when, gotA, gotB, wantA, wantB)
			}
		}
		want("before", 0, 0)
		setDefault("canary", b)
		advance(20 * time.Second)
		want("a refuses", 0, 20*time.Second)
		setDefault("stable", b)
		advance(time.Second)
		want("b withdraws", 0, 0)
		a.drain.Store(int64(30 * time.Second))
		setDefault("canary", a, b)
		advance(5 * time.Second)
		want("a drains", 5*time.Second, 5*time.Second)
		advance(30 * time.Second)
		want("b leads", 0, 0)
		setDefault("stable", a, b)
		advance(time.Millisecond)
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
		advance(time.Minute)
		a.drain.Store(int64(3 * time.Second))
		setDefault("canary", a, b)
		advance(time.Second)
		a.disconnect(true)
		_ = a.Quit() // the release fails
		if s := a.Status(); s.Phase != "done" || s.HandoverWait != 0 {
			t.Errorf("after the end: %+v", s)
		}
	})
}

// A follower's observer and the caller of Changed are notified of each renewal of the leader, and not in between.
func TestStatusChanged(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		var seen recorder
		changes := func() int {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return seen.changes
		}
		a := startRanked(t, store, "a", "stable", "stable")
		advance(time.Second)
		b := startRecorded(t, store, "b", "stable", &seen)
		advance(time.Second)
		st := b.Status()
		if st.Holder != "a" || !st.Acting || st.Object == nil {
			t.Errorf("%+v", st)
		}
		before := changes()
		next := b.Changed()
		select {
		case <-next:
			t.Error("Changed reports a change before it")
		default:
		}
		if next != b.Changed() {
			t.Error("Changed returned two channels for one change")
		}
		advance(time.Minute) // a renewal every 7.5 s
		if n := changes() - before; n < 8 || n > 9 {
			t.Errorf("%d changes in a minute", n)
		}
		<-next
		a.disconnect(true)
		history := store.History()
		before = changes()
		advance(time.Until(history[len(history)-1].At.Add(lease - time.Second)))
		if n := changes() - before; n > 1 || !b.Status().Acting {
			t.Errorf("%d changes without a renewal; %+v", n, b.Status())
		}
		advance(2 * time.Second)
		if st := b.Status(); st.Holder == "a" && st.Acting {
			t.Errorf("the lease expired: %+v", st)
		}
	})
}

// The configured adaptor checks its elector. A follower is healthy, and so is an adaptor without an elector.
func TestHealthzAdaptor(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		leader := le.NewLeaderHealthzAdaptor(0)
		follower := le.NewLeaderHealthzAdaptor(0)
		if leader.Check(nil) != nil || leader.Name() != "leaderElection" {
			t.Error("unhealthy without an elector")
		}
		a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.WatchDog = leader })
		advance(time.Second)
		startCandidate(t, store, "b", func(c *le.LeaderElectionConfig) { c.WatchDog = follower })
		a.drain.Store(int64(2 * lease))
		a.disconnect(true)
		advance(lease - retry)
		if err := leader.Check(nil); err != nil {
			t.Errorf("before the lease expired: %v", err)
		}
		if advance(2 * retry); leader.Check(nil) == nil || follower.Check(nil) != nil {
			t.Errorf("run functions continue after the lease: %v, new leader: %v", leader.Check(nil), follower.Check(nil))
		}
		advance(2 * lease)
		if err := leader.Check(nil); err != nil {
			t.Errorf("after the functions returned: %v", err)
		}
		a.disconnect(false)
	})
}

// A leader is healthy as long as its renewals are stored, also if its watch shows them before their replies, or without one.
func TestHealthzAdaptor_RepliesAreLate(t *testing.T) {
	for name, fault := range map[string]apiserver.Fault{"late": {After: time.Second}, "lost": {Lose: apiserver.TheReply, Hang: true}} {
		t.Run(name, func(t *testing.T) {
			onConfigMap(t, func(t *testing.T, store *locktest.Store) {
				health := le.NewLeaderHealthzAdaptor(0)
				a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.WatchDog = health })
				advance(time.Second)
				a.lock.On(func(r apiserver.Request) apiserver.Fault {
					if r.Verb != locktest.Update {
						return apiserver.Fault{}
					}
					return fault
				})
				advance(3 * lease)
				if err := health.Check(nil); err != nil || !a.Live() || len(a.Spans()) != 1 {
					t.Errorf("the leader %v is unhealthy: %v", a.Spans(), err)
				}
			})
		})
	}
}
