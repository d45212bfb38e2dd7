package k8sleaderelection

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
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
	if len(l.inbox.queue) != 1 || l.inbox.queue[0].in.Result != core.OK || !errors.Is(lock.ctx.Err(), context.Canceled) {
		t.Errorf("%d events; the call's context has ended with %v", len(l.inbox.queue), lock.ctx.Err())
	}
}

// What was never sent took as long as it has waited.
func TestACallThatWasNeverMadeTookItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDispatcher(1)
		hang := make(chan struct{})
		d.call(t.Context(), time.Hour, func() { <-hang; d.ended() }, func() {})
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) { c.Dispatcher = d })
		d.clock, l.le.clock = NewClock(nil), NewClock(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.values = ctx
		l.send(core.Action{Op: core.Renew})
		l.helpers.Wait()
		if took := l.inbox.queue[0].call.took; took != time.Second {
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
	if l.inbox.signals != 0 {
		t.Errorf("told %d", l.inbox.signals)
	}
	slept = time.Hour
	clock.Now()
	if l.inbox.signals != ticked {
		t.Errorf("after a sleep told %d, want %d", l.inbox.signals, ticked)
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
			snap.Notes.Nominated = core.Nomination{Identity: c.nominee, Transitions: 3}
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
		"refused":                  {k8sresourcelock.News{Kind: k8sresourcelock.Refused}, true, core.Input{Kind: core.Unwatched}},
		"a try that was refused":   {k8sresourcelock.News{Kind: k8sresourcelock.Refused}, false, core.Input{}},
		"a version that is no one": {k8sresourcelock.News{Kind: k8sresourcelock.Changed, Snapshot: k8sresourcelock.Snapshot{ResourceVersion: "x"}}, true, core.Input{}},
	} {
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
		l.state.Watch = c.watch
		ev := &event{news: &c.news}
		l.hear(ev)
		if ev.in != c.want {
			t.Errorf("%s: %+v, want %+v", name, ev.in, c.want)
		}
		if l.endWork != nil {
			l.endWork()
			l.helpers.Wait()
		}
	}
}

// both is a context that ends at the moment when what was posted last is taken in.
type both struct {
	context.Context
	l *loop
}

func (b both) Done() <-chan struct{} {
	close(b.l.inbox.queue[len(b.l.inbox.queue)-1].taken)
	ended := make(chan struct{})
	close(ended)
	return ended
}

// What was taken in is known for that, also when the end has come meanwhile.
func TestWhatWasTakenInAtTheEnd(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	f := newFollower(l, nil)
	for range 100 {
		if !f.post(both{t.Context(), l}, &event{}) {
			t.Fatal("it was taken in")
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if f.post(ended, &event{}) {
		t.Error("it was not taken in")
	}
}

// taken takes in all that is in the inbox, as far as a follower can tell.
func (l *loop) takenIn() (all []*event) {
	synctest.Wait()
	for {
		l.inbox.mu.Lock()
		queue := l.inbox.queue
		l.inbox.queue = nil
		l.inbox.mu.Unlock()
		if len(queue) == 0 {
			return all
		}
		for _, ev := range queue {
			close(ev.taken)
		}
		all = append(all, queue...)
		synctest.Wait()
	}
}

// A follower that finds its watch can be shared hands the share to the loop, and has ended.
func TestAFollowerEndsWithASharedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		store.ShareWatches()
		client := store.Lock("a", "stable")
		l := stillLoop(t, client.Locker)
		returned := false
		go func() { newFollower(l, client.Locker).run(t.Context()); returned = true }()
		all := l.takenIn()
		if len(all) != 1 || all[0].sub == nil || !returned {
			t.Fatalf("%d events, it has returned: %v", len(all), returned)
		}
		if n := client.Watching(); n != 1 {
			t.Errorf("%d watches", n)
		}
		all[0].sub.End()
	})
}

// The first watch may have missed something; one that resumes has not.
func TestWhatAFollowerSaysOfItsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.ConfigMap)
		client := store.Lock("a", "stable")
		store.Put("b", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "b", LeaseDurationSeconds: 30})
		l := stillLoop(t, client.Locker)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go newFollower(l, client.Locker).run(ctx)
		var got []core.Input
		for i := range 2 {
			if i > 0 {
				client.DropWatches()
			}
			<-time.After(time.Minute)
			for _, ev := range l.takenIn() {
				got = append(got, core.Input{Kind: ev.in.Kind, Gap: ev.in.Gap})
			}
			<-time.After(time.Minute)
			for _, ev := range l.takenIn() {
				got = append(got, core.Input{Kind: ev.in.Kind, Gap: ev.in.Gap})
			}
		}
		want := []core.Input{{Kind: core.Watching, Gap: true}, {Kind: core.Seen}, {Kind: core.Unwatched}, {Kind: core.Watching}}
		if len(got) != len(want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%d: %+v, want %+v", i, got[i], want[i])
			}
		}
	})
}

// scripted is a lock whose watches end as a test says; then they last.
type scripted struct {
	k8sresourcelock.Versioned
	ends []error
}

func (s *scripted) Watch(ctx context.Context, _ string, _ func(), _ func(k8sresourcelock.Snapshot)) (string, error) {
	if len(s.ends) > 0 {
		err := s.ends[0]
		s.ends = s.ends[1:]
		return "", err
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// The end of the process is no trouble, and a watch that ends without an error was not up for it.
func TestWhatIsNoNewsOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		lock := &scripted{Versioned: locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker}
		run := func(ends ...error) string {
			log.Reset()
			lock.ends = ends
			l := stillLoop(t, lock, func(c *LeaderElectionConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			ctx, cancel := context.WithCancel(t.Context())
			l.helpers.Go(func() { newFollower(l, lock).run(ctx) })
			<-time.After(time.Hour)
			cancel()
			l.helpers.Wait()
			return log.String()
		}
		if got := run(); got != "" {
			t.Errorf("of its end is told\n%s", got)
		}
		if got := run(errors.New("broken"), nil); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be watched") {
			t.Errorf("of one that failed, and one that ended at once, is told\n%s", got)
		}
	})
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
		l.stopWatching()
	})
}
