package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// keptLock is a kept lock as the watch or a read shows it.
func keptLock(version string) k8sresourcelock.Snapshot {
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: k8sresourcelock.Successors, LeaseDurationSeconds: 30, LeaderTransitions: 4}
	return k8sresourcelock.Snapshot{
		Exists: true, UID: "u", ResourceVersion: version, Record: record,
		Notes: map[string]string{k8sresourcelock.PredecessorAnnotation: k8sresourcelock.SuccessorsNote(record, "other")},
	}
}

func istiodsLock(version string) k8sresourcelock.Snapshot {
	s := keptLock(version)
	s.Record.HolderIdentity, s.Notes = "istiod", nil
	return s
}

// keepingOf keeps a lock that it wrote now as version 10.
func keepingOf(store *locktest.Store) *keeping {
	k := keeperOf(store.Lock("s", "canary"))
	now := k.clock.Now()
	return &keeping{
		keeper: k, answers: make(chan answer, 1), news: make(chan k8sresourcelock.Snapshot),
		held: hold{snap: keptLock("10"), sent: now, cover: now.Plus(oldRenew)},
	}
}

// What a watch shows is taken in if it is newer than what was written; and the lock is lost
// when it is nobody's of ours any more.
func TestWhatAKeeperSees(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		for name, x := range map[string]struct {
			snap     k8sresourcelock.Snapshot
			lost     bool
			goesFrom string
		}{
			"its own write":           {keptLock("10"), false, "10"},
			"an older one":            {keptLock("9"), false, "10"},
			"a late event, another's": {istiodsLock("9"), false, "10"},
			"another successor's":     {keptLock("11"), false, "11"},
			"another's":               {istiodsLock("11"), true, "10"},
		} {
			s := keepingOf(store)
			if lost := s.saw(x.snap); lost != x.lost || s.held.snap.ResourceVersion != x.goesFrom {
				t.Errorf("%s: lost %v, goes on from %s", name, lost, s.held.snap.ResourceVersion)
			}
		}
	})
}

// When a keeper calls, and what: a write a RetryPeriod after the last one was sent, or a read
// when it does not know what stands there.
func TestWhenAKeeperCalls(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		const left = 12 * time.Second
		for name, x := range map[string]struct {
			change func(*keeping)
			wait   time.Duration
			calls  bool
			read   bool
		}{
			"just written":              {func(*keeping) {}, oldRetry, false, false},
			"a RetryPeriod ago":         {func(s *keeping) { s.held.sent.Mono = s.held.sent.Mono.After(-oldRetry) }, left, true, false},
			"almost":                    {func(s *keeping) { s.held.sent.Mono = s.held.sent.Mono.After(1 - oldRetry) }, 1, false, false},
			"a call is under way":       {func(s *keeping) { s.flying = true; s.held.sent.Mono = s.held.sent.Mono.After(-oldRetry) }, left, false, false},
			"it has to look":            {func(s *keeping) { s.stale = true }, left, true, true},
			"it has to look, later":     {func(s *keeping) { s.stale, s.tryAt.Mono = true, s.held.sent.Mono.After(time.Second) }, time.Second, false, false},
			"its cover ends earlier":    {func(s *keeping) { s.stale, s.tryAt.Mono = true, s.held.sent.Mono.After(time.Minute) }, left, false, false},
			"writes fail for longer":    {func(s *keeping) { s.tryAt.Mono = s.held.sent.Mono.After(9 * time.Second) }, 9 * time.Second, false, false},
			"writes failed for a while": {func(s *keeping) { s.tryAt.Mono = s.held.sent.Mono.After(time.Second) }, oldRetry, false, false},
		} {
			s := keepingOf(store)
			x.change(s)
			was := s.flying
			if wait := s.next(t.Context(), left); wait != x.wait {
				t.Errorf("%s: looks again in %v, want %v", name, wait, x.wait)
			}
			s.calls.Wait()
			select {
			case a := <-s.answers:
				if !x.calls || a.read != x.read || !s.flying {
					t.Errorf("%s: called %+v", name, a)
				}
			default:
				if x.calls || s.flying != was {
					t.Errorf("%s: no call", name)
				}
			}
		}
	})
}

// What a keeper makes of the end of a call.
func TestWhatAKeeperMakesOfAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		conflict := fmt.Errorf("%w: met another", k8sresourcelock.ErrConflict)
		other := errors.New("no answer")
		const eighth = oldRetry / 8
		for name, x := range map[string]struct {
			err   error
			fails int
			wait  time.Duration
		}{
			"a conflict":              {conflict, 0, 0},
			"another conflict":        {conflict, 1, 2 * eighth},
			"no answer":               {other, 0, eighth},
			"no answer, again":        {other, 1, 2 * eighth},
			"for the fourth time":     {other, 3, oldRetry},
			"for the hundredth time":  {other, 99, oldRetry},
			"a conflict after others": {conflict, 2, 4 * eighth},
		} {
			s := keepingOf(store)
			s.flying, s.fails = true, x.fails
			lost := s.answered(answer{err: x.err})
			want := k8sleaderelection.Moment{}.Mono
			if x.wait > 0 {
				want = s.clock.Now().Mono.After(x.wait)
			}
			if lost || !s.stale || s.flying || s.fails != x.fails+1 || s.tryAt.Mono != want {
				t.Errorf("%s: lost %v, stale %v, under way %v, %d failures, tries at %v, want %v", name, lost, s.stale, s.flying, s.fails, s.tryAt.Mono, want)
			}
		}
		for name, x := range map[string]struct {
			snap k8sresourcelock.Snapshot
			lost bool
		}{"kept": {keptLock("12"), false}, "another's": {istiodsLock("12"), true}, "kept, put back": {keptLock("8"), false}} {
			s := keepingOf(store)
			s.stale, s.flying = true, true
			if lost := s.answered(answer{read: true, snap: x.snap}); lost != x.lost || s.stale || s.flying || s.held.snap.ResourceVersion != x.snap.ResourceVersion {
				t.Errorf("a read of a lock that is %s: lost %v, %+v", name, lost, s.held.snap)
			}
		}
		for was, goesFrom := range map[string]string{"10": "11", "11": "11", "12": "12"} {
			s := keepingOf(store)
			var told k8sleaderelection.Cover
			s.keeper.bound = func(c k8sleaderelection.Cover) { told = c }
			s.held.snap, s.fails, s.flying = keptLock(was), 3, true
			wrote := hold{snap: keptLock("11"), sent: s.held.sent, cover: s.clock.Now().Plus(time.Second)}
			lost := s.answered(answer{held: wrote})
			if lost || s.fails != 0 || s.flying || s.held.snap.ResourceVersion != goesFrom || s.held.cover != wrote.cover || told != wrote.cover {
				t.Errorf("a write, %s was seen: lost %v, %d failures, goes on from %s, gate until %+v", was, lost, s.fails, s.held.snap.ResourceVersion, told)
			}
		}
	})
}

// What a keeper writes: a second above the recorded stamp at least, unless that is no clock's.
func TestWhatAKeeperWrites(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		k := keeperOf(store.Lock("s", "canary"))
		passes(1500 * time.Millisecond)
		now := k.clock.Now()
		second := time.Unix(0, now.Wall).UTC().Truncate(time.Second)
		for name, x := range map[string]struct{ recorded, want time.Time }{
			"written long ago":      {second.Add(-time.Hour), second},
			"a second ago":          {second.Add(-time.Second), second},
			"less than that ago":    {second.Add(-time.Second + time.Millisecond), second.Add(time.Millisecond)},
			"now":                   {second, second.Add(time.Second)},
			"ahead":                 {second.Add(9 * time.Second), second.Add(10 * time.Second)},
			"almost a day ahead":    {second.Add(24*time.Hour - 2*time.Second), second.Add(24*time.Hour - time.Second)},
			"a day ahead, no clock": {second.Add(24*time.Hour - time.Second), second},
		} {
			base := keptLock("10")
			base.Record.LeaseDurationSeconds = 7
			base.Record.RenewTime, base.Record.AcquireTime = metav1.NewTime(x.recorded), metav1.NewTime(second.Add(-time.Hour))
			got := k.record(base, now)
			if !got.RenewTime.Time.Equal(x.want) || got.LeaderTransitions != 4 || !got.AcquireTime.Time.Equal(second.Add(-time.Hour)) {
				t.Errorf("%s: renewed %v after the clock, transitions %d, acquired %v", name, got.RenewTime.Sub(second), got.LeaderTransitions, got.AcquireTime)
			}
			if got.HolderIdentity != k8sresourcelock.Successors || got.HolderKey != "stable" || got.LeaseDurationSeconds != 30 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		taken := k.record(istiodsLock("10"), now)
		if taken.HolderIdentity != k8sresourcelock.Successors || taken.LeaderTransitions != 5 || !taken.AcquireTime.Time.Equal(second) {
			t.Errorf("over another's: %+v", taken)
		}
	})
}

// A keeper acts for RenewDeadline from when its write was sent, and says by whom it is kept.
func TestWhatAKeepersWriteLetsItDo(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		store.Put("istiod", istiodsLock("1").Record)
		lock := store.Lock("s", "canary")
		k := keeperOf(lock)
		base, err := k.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lock.Client.SetLatency(time.Second, time.Second)
		sent := k.clock.Now()
		held, err := k.write(t.Context(), base)
		if err != nil || held.sent != sent || held.cover != sent.Plus(oldRenew) || !held.snap.KeptForSuccessors() {
			t.Errorf("%+v, %v", held, err)
		}
		note := held.snap.Notes[k8sresourcelock.PredecessorAnnotation]
		if want := k8sresourcelock.SuccessorsNote(held.snap.Record, "s"); note != want {
			t.Errorf("the note %q, want %q", note, want)
		}
		// A call is given up while there is time for another within the deadline.
		lock.Client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		for _, call := range []func() error{
			func() error { _, err := k.read(t.Context()); return err },
			func() error { _, err := k.write(t.Context(), held.snap); return err },
		} {
			began := time.Now()
			if err := call(); err == nil || time.Since(began) != (oldRenew-oldRetry)/2 {
				t.Errorf("a call without an answer: %v after %v", err, time.Since(began))
			}
		}
	})
}

// How long a keeper pauses after failures in a row, and that the end of its context ends it.
func TestHowLongAKeeperPauses(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		k := keeperOf(store.Lock("s", "canary"))
		for fails, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64} {
			began := time.Now()
			k.backOff(t.Context(), fails, time.Hour)
			if got := time.Since(began); got != want*oldRetry/8 {
				t.Errorf("after %d failures: %v, want %v", fails, got, want*oldRetry/8)
			}
			began = time.Now()
			k.backOff(t.Context(), fails, oldRetry/2)
			if got := time.Since(began); got != min(want*oldRetry/8, oldRetry/2) {
				t.Errorf("after %d failures, at most half a RetryPeriod: %v", fails, got)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if k.linger(ctx, time.Hour); time.Since(began) != 0 {
			t.Error("it waits although its context has ended")
		}
	})
}

// What is remembered of the holders of earlier versions.
func TestWhoIsRememberedOfEarlierVersions(t *testing.T) {
	now := k8sleaderelection.Moment{Mono: 1e12}
	for name, x := range map[string]struct {
		holder string
		seen   []int
		kept   int
		back   bool
	}{
		"nobody was seen":          {"istiod", nil, 0, false},
		"an empty record":          {"", []int{7}, 3, false},
		"a kept one":               {k8sresourcelock.Successors, []int{7}, 3, false},
		"kept after its term":      {"istiod", []int{7}, 8, false},
		"kept in its term":         {"istiod", []int{7}, 7, true},
		"kept before its term":     {"istiod", []int{7}, 3, true},
		"before the newest":        {"istiod", []int{7, 5}, 6, true},
		"at its very beginning":    {"istiod", []int{0}, 0, true},
		"after the newest, seen 1": {"istiod", []int{5, 7}, 8, false},
	} {
		var f former
		for _, transitions := range x.seen {
			f.saw(x.holder, "object", transitions)
		}
		back, want := f.rewound("object", x.kept, now, 9*time.Second), time.Duration(0)
		if x.back {
			want = 9 * time.Second
		}
		if wait := max(f.actsFor(now), 0); back != x.back || wait != want {
			t.Errorf("%s: an earlier state %v, waits %v", name, back, wait)
		}
		// It counts once.
		if f.rewound("object", x.kept, now, time.Hour) || max(f.actsFor(now), 0) != want {
			t.Errorf("%s: it counts twice", name)
		}
		// Who is waited for for longer is not forgotten for who needs less.
		if f.saw("istiod", "object", 9); !f.rewound("object", 1, now, time.Second) || f.actsFor(now) != max(want, time.Second) {
			t.Errorf("%s: then it waits %v", name, f.actsFor(now))
		}
	}
}

// A lock that is another object was deleted beneath the holder that was seen in the first one.
func TestAnotherObjectEndsNoTerm(t *testing.T) {
	for name, x := range map[string]struct {
		seen []types.UID
		kept types.UID
		back bool
	}{
		"the same":                    {[]types.UID{"a"}, "a", false},
		"another":                     {[]types.UID{"a"}, "b", true},
		"seen before there was one":   {[]types.UID{""}, "a", false},
		"then known":                  {[]types.UID{"", "a"}, "a", false},
		"then another":                {[]types.UID{"", "a"}, "b", true},
		"seen in both, the first one": {[]types.UID{"a", "b"}, "b", true},
	} {
		var f former
		for _, uid := range x.seen {
			f.saw("istiod", uid, 3)
		}
		if back := f.rewound(x.kept, 7, k8sleaderelection.Moment{}, time.Second); back != x.back {
			t.Errorf("%s: does not follow: %v", name, back)
		}
		// What was seen is forgotten with its object.
		if f.saw("istiod", "c", 3); f.rewound("c", 7, k8sleaderelection.Moment{}, time.Second) {
			t.Errorf("%s: the next one does not follow", name)
		}
	}
}

// settings is a gate that remembers what it was set to.
type settings struct {
	term    k8sleaderelection.Term
	end     k8sleaderelection.Cover
	drained int
}

func (g *settings) Set(term k8sleaderelection.Term, end k8sleaderelection.Cover) {
	g.term, g.end = term, end
}
func (g *settings) Drain() { g.drained++ }

// A gate beside a predecessor's lock ends with the earlier cover by each of the clocks.
func TestAGateBesideThePredecessorsLock(t *testing.T) {
	term := k8sleaderelection.Term{LockUID: "u", Token: 3}
	own, kept := k8sleaderelection.Cover{Mono: 5, Boot: 20, Wall: 30}, k8sleaderelection.Cover{Mono: 9, Boot: 10, Wall: 31}
	both := k8sleaderelection.Cover{Mono: 5, Boot: 10, Wall: 30}
	var none k8sleaderelection.Cover
	for _, first := range []bool{true, false} {
		inner := &settings{}
		g := &boundGate{gate: inner}
		if first {
			g.Set(term, own)
		} else {
			g.setBound(kept)
		}
		if inner.end != none {
			t.Errorf("open with one cover: %+v", inner.end)
		}
		if first {
			g.setBound(kept)
		} else {
			g.Set(term, own)
		}
		if inner.end != both || inner.term != term {
			t.Errorf("with both: %+v of %+v", inner.end, inner.term)
		}
		if left := g.left(k8sleaderelection.Moment{Mono: 1, Boot: 2, Wall: 3}); left != 8 {
			t.Errorf("the other cover has %d left", left)
		}
		if g.setBound(none); inner.end != none || inner.term != term {
			t.Errorf("the other cover is over: %+v of %+v", inner.end, inner.term)
		}
		g.setBound(kept)
		if g.Set(k8sleaderelection.Term{}, none); inner.end != none || inner.term != (k8sleaderelection.Term{}) {
			t.Errorf("its own is over: %+v of %+v", inner.end, inner.term)
		}
		if g.Drain(); inner.drained != 1 {
			t.Error("it does not drain")
		}
	}
}
