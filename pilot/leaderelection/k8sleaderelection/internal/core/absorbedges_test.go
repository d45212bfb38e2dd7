package core

import (
	"math"
	"testing"
	"time"
)

// moment is an instant after testNow, on all clocks.
func moment(after time.Duration) Moment {
	return Moment{Mono: testNow.Mono.After(after), Boot: testNow.Boot + int64(after), Wall: testNow.Wall + int64(after)}
}

// A poll comes after RetryPeriod times 1 to 2.2, and one RetryPeriod later while a watch
// is up.
func TestWhenTheNextPollComes(t *testing.T) {
	c := testConfig() // RetryPeriod 2 s
	for _, p := range []struct {
		jitter uint8
		watch  bool
		wait   time.Duration
	}{
		{0, false, 2 * time.Second},
		{128, false, 3200 * time.Millisecond},
		{128, true, 5200 * time.Millisecond},
		{0, true, 4 * time.Second},
	} {
		s := c.pollAfter(State{Watch: p.watch}, Input{Now: testNow, Jitter: p.jitter})
		if got := testNow.Mono.Until(s.PollAt); got != p.wait {
			t.Errorf("jitter %d, watch %v: %v", p.jitter, p.watch, got)
		}
	}
}

// At first one does not preempt again for a RetryPeriod; then for long enough for the
// other to settle, and for twice as long each further time.
func TestHowLongOneDisplacedHoldsBack(t *testing.T) {
	c := testConfig() // lease 15 s, grace 5 s, RetryPeriod 2 s
	for n, want := range []time.Duration{2 * time.Second, 22 * time.Second, 44 * time.Second, 88 * time.Second} {
		if got := c.preemptPause(uint8(n)); got != want {
			t.Errorf("after %d times: %v, want %v", n, got, want)
		}
	}
}

func TestWhichEventsAreOutdated(t *testing.T) {
	there := State{Known: Current, Snap: Snapshot{Exists: true, Version: 7}}
	gone := State{Known: Current, Snap: Snapshot{Version: 7}}
	for name, c := range map[string]struct {
		s       State
		version uint64
		want    bool
	}{
		"nothing is known":             {State{Snap: Snapshot{Version: 7}}, 1, false},
		"older":                        {there, 6, true},
		"the same":                     {there, 7, false},
		"newer":                        {there, 8, false},
		"from before a deletion":       {gone, 6, true},
		"that of the deleted":          {gone, 7, true},
		"made anew after the deletion": {gone, 8, false},
	} {
		if got := c.s.outdated(Snapshot{Exists: true, Version: c.version}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What a watch that begins with the present state may have missed is known only if
// something was known; a read under way then was sent before.
func TestWhatAGapLeavesOpen(t *testing.T) {
	reading, writing := State{Known: Current}, State{Known: Current}
	reading.Flight.Op, writing.Flight.Op = Read, Renew
	for name, c := range map[string]struct {
		s      State
		known  Knowledge
		before bool
	}{
		"at the first": {State{}, Unread, false},
		"in a read":    {reading, BehindGap, true},
		"in a write":   {writing, BehindGap, false},
		"in no call":   {State{Known: Current}, BehindGap, false},
	} {
		if got := testConfig().absorb(c.s, Input{Kind: Watching, Gap: true}); got.Known != c.known || got.Flight.BeforeGap != c.before {
			t.Errorf("%s: %v, before %v", name, got.Known, got.Flight.BeforeGap)
		}
	}
}

// A user's comparison counts as it was when the loop looked; an event or an answer brings
// none of its own unless it shows another record.
func TestWhatInputsChange(t *testing.T) {
	c := testConfig()
	for _, was := range []bool{false, true} {
		for kind, takes := range map[Kind]bool{Tick: true, Watching: true, Unwatched: true, Drained: true, Stop: true} {
			if got := c.absorb(State{Beats: was}, Input{Kind: kind, Now: testNow, Beats: !was}).Beats; got != !was == takes {
				t.Errorf("%v: %v after %v", kind, got, was)
			}
		}
	}
	for phase, want := range map[Phase]DrainKind{Leading: DrainToStepDown, Following: 0, Settling: 0, Draining: 0} {
		if got := c.absorb(State{Phase: phase}, Input{Kind: StepDown, Now: testNow}).Drain.Kind; got != want {
			t.Errorf("stepping down while %v: %v", phase, got)
		}
	}
	if c.absorb(State{Phase: Draining, Drain: Drain{Kind: DrainToStepDown}}, Input{Kind: StepDown, Now: testNow}).Drain.Kind != DrainToStepDown {
		t.Error("a second order to step down took the first one back")
	}
	if s := c.absorb(State{Watch: true}, Input{Kind: Unwatched, Now: testNow}); s.Watch {
		t.Error("watched without a watch")
	}
	// What a refusal was based on is over when the default changes, and only then.
	canary := DefaultRevision{Synced: true, Revision: "canary"}
	held := State{Default: canary, Displaced: Displaced{ByEqual: true, NotBefore: testNow.Mono, Times: 3}, Asking: Requests{NotBefore: testNow.Mono}}
	same := c.absorb(held, Input{Kind: DefaultChanged, Now: testNow, Default: canary})
	if !same.Displaced.ByEqual || same.Displaced.NotBefore == 0 || same.Displaced.Times != 3 || same.Asking.NotBefore == 0 {
		t.Errorf("the same default was told again: %+v", same)
	}
	other := c.absorb(held, Input{Kind: DefaultChanged, Now: testNow, Default: DefaultRevision{Synced: true, Revision: "stable"}})
	if other.Displaced.ByEqual || other.Displaced.NotBefore != 0 || other.Displaced.Times != 0 || other.Asking.NotBefore != 0 || other.Default.Revision != "stable" {
		t.Errorf("another default: %+v", other)
	}
}

// Of three clocks the one counts that ran the most.
func TestTheCoverEndsByTheFastestClock(t *testing.T) {
	end := testNow.Plus(10 * time.Second)
	for name, c := range map[string]struct {
		now  Moment
		left time.Duration
	}{
		"all alike":     {moment(4 * time.Second), 6 * time.Second},
		"a suspend":     {Moment{Mono: testNow.Mono, Boot: testNow.Boot + 9e9, Wall: testNow.Wall + 3e9}, time.Second},
		"a restored VM": {Moment{Mono: testNow.Mono, Boot: testNow.Boot + 3e9, Wall: testNow.Wall + 11e9}, -time.Second},
		"mono ahead":    {Moment{Mono: testNow.Mono.After(8 * time.Second), Boot: testNow.Boot, Wall: testNow.Wall}, 2 * time.Second},
	} {
		if got := end.Left(c.now); got != c.left {
			t.Errorf("%s: %v left", name, got)
		}
	}
	if got := (Cover{}).Left(Moment{Mono: -5, Boot: -5, Wall: -5}); got != 0 {
		t.Errorf("no cover: %v left", got)
	}
	if Never.Until(Never) != math.MaxInt64 || testNow.Mono.Until(Never) != math.MaxInt64 || testNow.Mono.After(math.MaxInt64) != Never {
		t.Error("never comes")
	}
	if got := (Instant(5)).Until(3); got != -2 {
		t.Errorf("two nanoseconds ago: %v", got)
	}
}
