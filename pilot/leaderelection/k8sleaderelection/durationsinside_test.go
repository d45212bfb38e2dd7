package k8sleaderelection

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// passOf is one pass at a second, from one state to the next.
func passOf(before, after core.State, acknowledged core.Op) *change {
	c := &change{in: core.Input{Now: core.ClockReading{Mono: core.Instant(time.Second)}}, before: before, after: after}
	c.before.Flight = core.Call{Op: core.Renew, Sent: core.ClockReading{Mono: 300}}
	if acknowledged != core.NoOp {
		c.in.Kind, c.in.Result, c.in.Snap.Version = core.Replied, core.OK, 1
		c.before.Flight.Op = acknowledged
	}
	return c
}

// What a handover takes is counted from when it was asked for, and from when it was promised,
// and forgotten with that.
func TestFromWhenAHandoverCounts(t *testing.T) {
	following := core.State{Phase: core.Following}
	asking := core.State{Phase: core.Following, Requesting: core.Requests{Wanted: true}}
	settling, leading := core.State{Phase: core.Settling}, core.State{Phase: core.Leading}
	giving := core.State{Phase: core.Draining, Drain: core.Drain{Kind: core.DrainToHandOver}}
	draining := core.State{Phase: core.Draining}
	for name, c := range map[string]struct {
		change    *change
		claim     core.Reason
		was, want durations
		told      []string
	}{
		"it has asked":                   {passOf(following, asking, core.SendRequest), "", durations{}, durations{requestedSince: 300}, nil},
		"it has asked again":             {passOf(asking, asking, core.SendRequest), "", durations{requestedSince: 100}, durations{requestedSince: 100}, nil},
		"it asked, and wants no more":    {passOf(asking, following, core.SendRequest), "", durations{}, durations{requestedSince: 300}, nil},
		"nothing was asked":              {passOf(settling, settling, core.NoOp), "", durations{}, durations{}, nil},
		"it waits":                       {passOf(asking, asking, core.NoOp), "", durations{requestedSince: 100}, durations{requestedSince: 100}, nil},
		"it wants no more":               {passOf(asking, following, core.NoOp), "", durations{requestedSince: 100}, durations{}, nil},
		"it settles":                     {passOf(asking, settling, core.NoOp), "", durations{requestedSince: 100}, durations{requestedSince: 100}, nil},
		"it leads by its nomination":     {passOf(settling, leading, core.NoOp), core.Nominated, durations{requestedSince: core.Instant(time.Second / 2)}, durations{}, []string{"lasted e handover 500ms"}},
		"it leads by itself":             {passOf(settling, leading, core.NoOp), core.Expired, durations{requestedSince: 100}, durations{}, nil},
		"nominated, it does not lead":    {passOf(settling, settling, core.NoOp), core.Nominated, durations{requestedSince: 100}, durations{requestedSince: 100}, nil},
		"it promises":                    {passOf(leading, giving, core.NoOp), "", durations{}, durations{handingOverSince: core.Instant(time.Second)}, nil},
		"it drains for one":              {passOf(giving, giving, core.NoOp), "", durations{handingOverSince: 100}, durations{handingOverSince: 100}, nil},
		"it drains for nobody":           {passOf(leading, draining, core.NoOp), "", durations{}, durations{}, nil},
		"it has given":                   {passOf(giving, following, core.HandOver), "", durations{handingOverSince: core.Instant(time.Second / 4)}, durations{}, []string{"lasted e handover-given 750ms"}},
		"it lost what it would give":     {passOf(giving, following, core.NoOp), "", durations{handingOverSince: 100}, durations{}, nil},
		"it gives, as the phase says no": {passOf(giving, core.State{Phase: core.Following, Drain: core.Drain{Kind: core.DrainToHandOver}}, core.NoOp), "", durations{handingOverSince: 100}, durations{handingOverSince: 100}, nil},
		"it drains, to give no more":     {passOf(giving, draining, core.NoOp), "", durations{handingOverSince: 100}, durations{handingOverSince: 100}, nil},
	} {
		r, heard, _ := reporting(t)
		r.claim = c.claim
		s := c.was
		s.handover(r, c.change)
		if s != c.want {
			t.Errorf("%s: %+v, want %+v", name, s, c.want)
		}
		heard.wants(t, name, c.told...)
	}
}

// A lock is vacant from now on when its record says so.
func TestARecordThatNamesNobodyWhoActs(t *testing.T) {
	r, heard, _ := reporting(t)
	const now = core.Instant(time.Second)
	held := core.Record{Holder: "x", Key: "k", Lease: 30 * time.Second, Transitions: 4, Acquired: 1, Renewed: 2}
	lock := func(change func(*core.Snapshot)) core.Snapshot {
		s := core.Snapshot{Exists: true, Content: core.Readable, Record: held}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		snap core.Snapshot
		want core.Instant
	}{
		"held":       {lock(func(*core.Snapshot) {}), 0},
		"absent":     {lock(func(s *core.Snapshot) { s.Exists = false }), now},
		"unreadable": {lock(func(s *core.Snapshot) { s.Content = core.Unreadable }), now},
		"free":       {lock(func(s *core.Snapshot) { s.Record.Holder = "" }), now},
		"nominated": {lock(func(s *core.Snapshot) {
			s.Record.Renewed = s.Record.Acquired
			s.Annotations.Nominated = core.Nomination{Identity: "x", Transitions: 4}
		}), now},
	} {
		s := core.State{Known: core.Current, Since: core.Since{Record: now}, Snap: c.snap}
		if got := r.leaderlessSince(&change{in: core.Input{Now: core.ClockReading{Mono: now}}, after: s}); got != c.want {
			t.Errorf("%s: vacant since %d, want %d", name, got, c.want)
		}
	}
	// What is not known ends nothing.
	s := durations{leaderlessSince: 1}
	if s.pass(r, &change{in: core.Input{Now: core.ClockReading{Mono: now}}}); s.leaderlessSince != 1 {
		t.Errorf("vacant since %d", s.leaderlessSince)
	}
	heard.wants(t, "what is not known")
}

// What Status tells of the lock: whether its holder acts, and until when unless it renews.
func TestWhatIsShownOfTheLock(t *testing.T) {
	r, _, _ := reporting(t)
	const seen = core.Instant(time.Second)
	own := r.le.config.Lock.Identity()
	until := seen.After(40 * time.Second)
	marker := core.Marker{Identity: "x", Transitions: 4, Handover: true}
	hold := core.Hold{Holder: "x", Transitions: 4, Seconds: 60, Reason: core.HoldForPause}
	for name, c := range map[string]struct {
		change func(*core.State)
		want   recordView
	}{
		"a peer":                {func(*core.State) {}, recordView{actsUntil: until, lease: 40 * time.Second}},
		"one of ours":           {func(s *core.State) { s.Snap.Annotations.Marker = marker }, recordView{actsUntil: until, lease: 40 * time.Second, handsOver: true}},
		"that cannot judge yet": {func(s *core.State) { s.Snap.Annotations.Marker = core.Marker{Identity: "x", Transitions: 4} }, recordView{actsUntil: until, lease: 40 * time.Second}},
		"one that waits": {func(s *core.State) {
			s.Snap.Annotations.Marker = core.Marker{Identity: "y", Transitions: 3, Handover: true}
		}, recordView{lease: 40 * time.Second}},
		"in an earlier term of its": {func(s *core.State) {
			s.Snap.Annotations.Marker = core.Marker{Identity: "x", Transitions: 3, Handover: true}
		}, recordView{lease: 40 * time.Second}},
		"nobody": {func(s *core.State) { s.Snap.Record.Holder = "" }, recordView{lease: 40 * time.Second}},
		"a nominee": {func(s *core.State) {
			s.Snap.Record.Renewed, s.Snap.Annotations.Nominated = s.Snap.Record.Acquired, core.Nomination{Identity: "x", Transitions: 4}
		}, recordView{lease: 40 * time.Second}},
		"ourselves, who settle":  {func(s *core.State) { s.Snap.Record.Holder, s.Phase = own, core.Settling }, recordView{lease: 40 * time.Second}},
		"ourselves, who lead":    {func(s *core.State) { s.Snap.Record.Holder, s.Phase = own, core.Leading }, recordView{actsUntil: until, lease: 40 * time.Second}},
		"ourselves, who drain":   {func(s *core.State) { s.Snap.Record.Holder, s.Phase = own, core.Draining }, recordView{actsUntil: until, lease: 40 * time.Second}},
		"a short lease":          {func(s *core.State) { s.Snap.Record.Lease = time.Second }, recordView{actsUntil: seen.After(r.core.Lease), lease: time.Second}},
		"a hold":                 {func(s *core.State) { s.Snap.Annotations.Hold = hold }, recordView{actsUntil: until, lease: 40 * time.Second, hold: hold}},
		"a hold that is over":    {func(s *core.State) { s.Snap.Annotations.Hold = core.Hold{Holder: "x", Transitions: 4} }, recordView{actsUntil: until, lease: 40 * time.Second}},
		"another's hold":         {func(s *core.State) { s.Snap.Annotations.Hold = core.Hold{Holder: "y", Transitions: 4, Seconds: 60} }, recordView{actsUntil: until, lease: 40 * time.Second}},
		"a hold of another term": {func(s *core.State) { s.Snap.Annotations.Hold = core.Hold{Holder: "x", Transitions: 3, Seconds: 60} }, recordView{actsUntil: until, lease: 40 * time.Second}},
	} {
		s := core.State{Known: core.Current, Since: core.Since{Record: seen}, Snap: core.Snapshot{
			Exists: true, Content: core.Readable,
			Record: core.Record{Holder: "x", Key: "k", Lease: 40 * time.Second, Transitions: 4, Acquired: 1, Renewed: 2},
		}}
		c.change(&s)
		if got := r.recordViewOf(&s); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A clock has jumped when it went ahead of the monotonic one by more than readings differ.
func TestWhenAClockHasJumped(t *testing.T) {
	if newJumps().seen(core.ClockReading{Mono: 1, Boot: int64(time.Hour)}) || newJumps().seen(core.ClockReading{Mono: 1, Wall: int64(time.Hour)}) {
		t.Error("the first reading is ahead of none")
	}
	const ms = int64(time.Millisecond)
	j := newJumps()
	for i, c := range []struct {
		mono, boot, wall int64 // in milliseconds; the nanoseconds come apart
		more             int64 // of CLOCK_BOOTTIME
		want             bool
	}{
		{mono: 1000, boot: 500, wall: 900000},                        // the first reading tells nothing
		{mono: 2000, boot: 1500, wall: 901000},                       // time passes
		{mono: 3000, boot: 2520, wall: 902000},                       // by as much as readings may differ
		{mono: 3000, boot: 2520, wall: 902000, more: 1, want: true},  // from the reading that was lowest
		{mono: 4000, boot: 3600, wall: 903000, want: true},           // the machine slept
		{mono: 4000, boot: 3600, wall: 903000},                       // that was told
		{mono: 5000, boot: 4600, wall: 904021, want: true},           // the wall clock was set
		{mono: 6000, boot: 5600, wall: 900000},                       // back
		{mono: 7000, boot: 6600, wall: 901021, want: true},           // and forth
		{mono: 8000, boot: 7600 + 21, wall: 902021 + 21, want: true}, // both
		{mono: 9000, boot: 8600 + 21, wall: 903021 + 21},             //
	} {
		now := core.ClockReading{Mono: core.Instant(c.mono * ms), Boot: c.boot*ms + c.more, Wall: c.wall * ms}
		if got := j.seen(now); got != c.want {
			t.Errorf("%d: %+v seen as a jump %v", i, c, got)
		}
	}
}

// Whoever reads the clocks tells the loops that are there, and no other.
func TestAnEndedLoopIsNotToldOfJumps(t *testing.T) {
	j, l := newJumps(), &loop{inputs: newInputs()}
	j.add(l)
	if j.notify(); l.signals != ticked {
		t.Errorf("signals %d", l.signals)
	}
	l.signals = 0
	j.remove(l)
	if j.notify(); l.signals != 0 {
		t.Errorf("it has ended, and has signals %d", l.signals)
	}
}
