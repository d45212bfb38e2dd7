package k8sleaderelection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// asked is a lock that keeps the context of what it was asked for last.
type asked struct {
	k8sresourcelock.Versioned
	ctx context.Context
}

func (a *asked) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	a.ctx = ctx
	return a.Versioned.Read(ctx)
}

func TestTheContextOfACallEndsWithIt(t *testing.T) {
	lock := &asked{Versioned: locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker}
	l := stillLoop(t, lock)
	l.send(core.Action{Op: core.Read})
	l.helpers.Wait()
	if len(l.events) != 1 || (<-l.events).in.Result != core.OK || !errors.Is(lock.ctx.Err(), context.Canceled) {
		t.Errorf("the call's context has ended with %v", lock.ctx.Err())
	}
}

// What was never sent took as long as it has waited.
func TestACallThatWasNeverMadeTookItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &k8sresourcelock.Shared{CallsAtOnce: 1}
		hang := make(chan struct{})
		d.Call(t.Context(), time.Hour, func(ended func()) { <-hang; ended() }, func() {})
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) { c.Shared = d })
		l.le.clock = NewClock(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.values = ctx
		l.send(core.Action{Op: core.Renew})
		l.helpers.Wait()
		if took := (<-l.events).call.took; took != time.Second {
			t.Errorf("it took %v", took)
		}
		close(hang)
	})
}

func TestAReadingWithoutASleepTellsNobody(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	slept := time.Duration(0)
	clock := NewClock(func() int64 { return readBoottime() + int64(slept) })
	wall := time.Now().UnixNano() - readBoottime()
	clock = clock.WithWall(func() int64 { return readBoottime() + wall })
	clock.jumps.add(l)
	for range 100 {
		clock.Now()
	}
	if l.signals != 0 {
		t.Errorf("told %d", l.signals)
	}
	slept = time.Hour
	clock.Now()
	if l.signals != ticked {
		t.Errorf("after a sleep told %d, want %d", l.signals, ticked)
	}
}

func TestWhatACandidateTakesTheLockAs(t *testing.T) {
	for name, c := range map[string]struct {
		holder, nominee string
		renewed         core.Stamp
		want            core.Reason
	}{
		"written in, and not there yet": {"a", "a", 5, core.Nominated},
		"written in, and renewed":       {"a", "a", 6, core.Reclaimed},
		"its own":                       {"a", "", 5, core.Reclaimed},
		"another's nomination":          {"b", "b", 5, core.Reclaimed},
	} {
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
		snap := core.Snapshot{Exists: true, Content: core.Readable, Record: core.Record{Holder: c.holder, Acquired: 5, Renewed: c.renewed, Transitions: 3}}
		if c.nominee != "" {
			snap.Annotations.Nominated = core.Nomination{Identity: c.nominee, Transitions: 3}
		}
		l.report.handover(&change{after: core.State{Snap: snap}, action: core.Action{Op: core.Acquire, Why: core.Reclaimed}})
		if got := l.report.claim; got != c.want || l.report.displaced != c.holder {
			t.Errorf("%s: as %s, from %s; want %s", name, got, l.report.displaced, c.want)
		}
	}
}

func TestWhatTheLoopHearsOfItsWatch(t *testing.T) {
	for name, c := range map[string]struct {
		news  k8sresourcelock.News
		watch bool
		want  core.Input
	}{
		"up, nothing missed":       {k8sresourcelock.News{Kind: k8sresourcelock.Up}, false, core.Input{Kind: core.Watching}},
		"up after a gap":           {k8sresourcelock.News{Kind: k8sresourcelock.Up, Gap: true}, false, core.Input{Kind: core.Watching, Gap: true}},
		"down":                     {k8sresourcelock.News{Kind: k8sresourcelock.Down}, true, core.Input{Kind: core.Unwatched}},
		"a try that has failed":    {k8sresourcelock.News{Kind: k8sresourcelock.Down}, false, core.Input{}},
		"a version that is no one": {k8sresourcelock.News{Kind: k8sresourcelock.Changed, Snapshot: k8sresourcelock.Snapshot{ResourceVersion: "x"}}, true, core.Input{}},
	} {
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
		l.state.Watch = c.watch
		ev := &event{news: &c.news}
		l.decodeNews(ev)
		if ev.in != c.want {
			t.Errorf("%s: %+v, want %+v", name, ev.in, c.want)
		}
	}
}

// takenIn takes in all that is posted until nothing more comes.
func (l *loop) takenIn() (all []*event) {
	synctest.Wait()
	for len(l.events) > 0 {
		all = append(all, <-l.events)
		synctest.Wait()
	}
	return all
}

// A shared watch that has shown later versions than the store has now begins anew.
func TestARewoundStoreIsWatchedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		store.ShareWatches()
		client := store.Lock("a", "stable")
		l := stillLoop(t, client.Locker)
		l.startWatching()
		<-time.After(time.Second)
		for i := range 3 {
			store.Put("b", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaseDurationSeconds: 30, LeaderTransitions: i})
		}
		synctest.Wait()
		before := client.Requests()[locktest.Watch]
		rewind := func(to string) int {
			l.base.ResourceVersion = to
			l.rewound()
			<-time.After(time.Minute)
			synctest.Wait()
			return client.Requests()[locktest.Watch] - before
		}
		if n := rewind(store.Snapshot().ResourceVersion); n != 0 {
			t.Errorf("%d watches more at the version that it has shown", n)
		}
		if n := rewind("1"); n != 1 || client.Watching() != 1 {
			t.Errorf("%d watches more, %d are open", n, client.Watching())
		}
		l.watch.End()
	})
}
