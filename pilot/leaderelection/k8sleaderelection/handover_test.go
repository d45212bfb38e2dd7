package k8sleaderelection_test

import (
	"sync/atomic"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// enterRanked runs a candidate of that revision, which ranks by the default revision.
func enterRanked(t *testing.T, store *locktest.Store, identity, revision, defaultRevision string) *candidate {
	t.Helper()
	c := prepareKey(t, store, identity, revision, func(c *le.LeaderElectionConfig) { c.Ranked = true })
	c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: defaultRevision})
	c.start(t)
	return c
}

// enterRankedTwo is enterTwo of a leader of the default revision, stable, and a follower of that one.
func enterRankedTwo(t *testing.T, store *locktest.Store, revision string) (leader, follower *candidate) {
	t.Helper()
	leader = enterRanked(t, store, "a", "stable", "stable")
	pass(time.Second)
	follower = enterRanked(t, store, "b", revision, "stable")
	pass(time.Minute)
	return leader, follower
}

func setDefault(revision string, candidates ...*candidate) {
	for _, c := range candidates {
		c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: revision})
	}
}

func TestFlipOfTheDefaultHandsOver(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		a.drain = 3 * time.Second
		setDefault("canary", a, b)
		pass(4 * time.Second)
		if a.isLive() || !b.isLive() {
			t.Fatalf("a live %v, b live %v\n%s%s", a.isLive(), b.isLive(), a.logged(), b.logged())
		}
		if gap := b.lastStart().Sub(a.lastStop()); gap != 0 {
			t.Errorf("b started %v after a's function had returned", gap)
		}
		snap := store.Snapshot()
		if snap.Record.HolderIdentity != "b" || snap.Record.HolderKey != "canary" || snap.Record.LeaderTransitions != 1 {
			t.Errorf("record %+v", snap.Record)
		}
		if len(snap.Notes) != 1 || snap.Notes[k8sresourcelock.MarkerAnnotation] != "v1 b 1 handover" {
			t.Errorf("notes %v", snap.Notes)
		}
		setDefault("stable", a, b)
		pass(time.Second)
		if !a.isLive() || b.isLive() {
			t.Fatal("not handed back")
		}
	})
}

// statuses counts how often a TermObserver hears that the Status has changed.
type statuses struct{ heard atomic.Int64 }

func (*statuses) Phase(string, string, string, string)               {}
func (*statuses) Call(string, string, string, string, time.Duration) {}
func (*statuses) Term(string, bool, string)                          {}
func (*statuses) ObserveDuration(string, le.Interval, time.Duration) {}
func (s *statuses) StatusChanged(string)                             { s.heard.Add(1) }

// A follower's Status tells who holds the lock, and an observer of it hears when that becomes different, of a peer's
// renewals as well; of nothing else.
func TestAnObserverHearsWhatOthersDo(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var seen statuses
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		b := prepareKey(t, store, "b", "stable", func(c *le.LeaderElectionConfig) { c.Ranked, c.Observer = true, &seen })
		b.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		b.start(t)
		pass(time.Second)
		st := b.Status()
		if st.Holder != "a" || !st.Acting || !st.HandsOver || st.LeaseDuration != lease || st.Hold.Seconds != 0 {
			t.Errorf("%+v", st)
		}
		before := seen.heard.Load()
		pass(time.Minute) // of renewals each 7.5 s
		if heard := seen.heard.Load() - before; heard < 8 || heard > 9 {
			t.Errorf("told %d times in a minute", heard)
		}
		a.cut(true)
		history := store.History()
		before = seen.heard.Load()
		pass(time.Until(history[len(history)-1].At.Add(lease - time.Second)))
		if heard := seen.heard.Load() - before; heard > 1 || !b.Status().Acting {
			t.Errorf("told %d times while nothing happens; %+v", heard, b.Status())
		}
		pass(2 * time.Second)
		if st := b.Status(); st.Holder == "a" && st.Acting {
			t.Errorf("a holder whose lease has run out acts: %+v", st)
		}
	})
}

// Both sides say for how long a handover goes on, and nothing of one that is over or that does not begin.
func TestAHandoverThatGoesOnIsInTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		waits := func(when string, wantA, wantB time.Duration) {
			t.Helper()
			if gotA, gotB := a.Status().HandoverWait, b.Status().HandoverWait; gotA != wantA || gotB != wantB {
				t.Errorf("%s: a has waited %v and b %v, want %v and %v", when, gotA, gotB, wantA, wantB)
			}
		}
		waits("before", 0, 0)
		setDefault("canary", b)
		pass(20 * time.Second)
		waits("a refuses", 0, 20*time.Second)
		setDefault("stable", b)
		pass(time.Second)
		waits("b wants no more", 0, 0)
		a.drain = 30 * time.Second
		setDefault("canary", a, b)
		pass(5 * time.Second)
		waits("a drains", 5*time.Second, 5*time.Second)
		pass(30 * time.Second)
		if !b.isLive() {
			t.Fatalf("b does not lead\n%s%s", a.logged(), b.logged())
		}
		waits("b leads", 0, 0)
		if err := b.quit(); err != nil {
			t.Fatal(err)
		}
		waits("b has ended", 0, 0)
	})
}

// A process that has ended while it was to hand over waits for nothing any more.
func TestAHandoverThatCannotBeWrittenEndsWithTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		a.drain = 3 * time.Second
		setDefault("canary", a, b)
		pass(time.Second)
		if a.Status().HandoverWait == 0 {
			t.Fatal("a does not drain")
		}
		a.cut(true)
		_ = a.quit() // which may say that it could not release
		pass(time.Minute)
		if s := a.Status(); s.Phase != "done" || s.HandoverWait != 0 {
			t.Errorf("it is %s and has waited %v", s.Phase, s.HandoverWait)
		}
	})
}

func TestLeaderWithALateWatcherWaitsAndThenAccepts(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		setDefault("canary", b)
		pass(time.Second)
		if !a.isLive() {
			t.Fatal("a gave way before its own watcher knew")
		}
		setDefault("canary", a)
		pass(time.Second)
		if !b.isLive() {
			t.Fatal("a did not hand over once it knew")
		}
	})
}

func TestRefusedRequestIsJudgedAnewWhenTheDefaultChanges(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		setDefault("canary", b)
		pass(5 * time.Second)
		if store.Snapshot().Notes[k8sresourcelock.HandoverRequestAnnotation] == "" || !a.isLive() {
			t.Fatal("no refused request stands")
		}
		setDefault("canary", a)
		pass(time.Second)
		if !b.isLive() {
			t.Fatal("the refusal was not judged anew")
		}
	})
}

func TestChallengerThatDiesLeavesTheLockToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		a.drain = 2 * time.Second
		setDefault("canary", a, b)
		pass(time.Second) // accepted; a drains
		b.cut(true)
		pass(2 * time.Second)
		if got := record(store).HolderIdentity; got != "b" {
			t.Fatalf("holder %q, want the nominee", got)
		}
		pass(retry + time.Second)
		if !a.isLive() {
			t.Fatalf("nobody took the lock from a nominee that never came: %+v", store.Snapshot())
		}
	})
}

func TestUnaskedNomineeReleases(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		store.Put("coordinator", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "b", HolderKey: "canary", LeaseDurationSeconds: 30, LeaderTransitions: 4})
		store.Annotate(k8sresourcelock.NominatedAnnotation, "b")
		b := enterRanked(t, store, "b", "canary", "stable")
		pass(time.Second)
		history := store.History()
		released := false
		for _, e := range history {
			released = released || e.By == "b" && e.Snapshot.Record.HolderIdentity == ""
		}
		if !released {
			t.Errorf("a nominee that had not asked did not release: %+v", history)
		}
		if !b.isLive() {
			t.Error("and then did not take the free lock")
		}
	})
}
