package core

import (
	"testing"
	"time"
)

// A term is ours while its record stands as we wrote it, in its lock.
func TestWhenATermIsOurs(t *testing.T) {
	c := testConfig()
	good := ours(seenAt(0, lock("mine")), Leading)
	if !c.ours(good) {
		t.Fatal("our own record is not ours")
	}
	for name, spoil := range map[string]func(*State){
		"it was gone once":     func(s *State) { s.Drain.Lost = RecordLost },
		"there is no term":     func(s *State) { s.Term, s.Snap.UID, s.Snap.Record.Transitions = Term{}, UID{}, 0 },
		"deleted":              func(s *State) { s.Snap.Exists = false },
		"unreadable":           func(s *State) { s.Snap.Content = Unreadable },
		"released":             func(s *State) { s.Snap.Record.Holder = "" },
		"another's":            func(s *State) { s.Snap.Record.Holder = "b" },
		"made anew":            func(s *State) { s.Snap.UID.First = "v" },
		"another term":         func(s *State) { s.Snap.Record.Transitions = 4 },
		"from before the term": func(s *State) { s.Snap.Version = 14 },
		"written by another":   func(s *State) { s.Snap.Record.Renewed = 8e6 },
		// At the end of the count a nominee's term has the same number, and its stamp is a second of another's clock.
		"written in anew": func(s *State) {
			s.Snap.Notes, s.Snap.Record.Acquired = Notes{Nominated: Nomination{Identity: "a", Transitions: 3}}, s.Snap.Record.Renewed
		},
		"in one of two objects":  func(s *State) { s.Snap.Halves = InFirst },
		"in the other of them":   func(s *State) { s.Snap.Halves = InSecond },
		"of which one was alone": func(s *State) { s.Snap.Version, s.Snap.UID = 15, UID{"u", "v"} },
	} {
		s := good
		if spoil(&s); c.ours(s) {
			t.Errorf("%s: it is ours", name)
		}
	}
	if good.Snap.Version = 15; !c.ours(good) {
		t.Error("the term's first write is not ours")
	}
}

// Until when a holder may act, by what was seen of it at testNow. PeerGrace is 5 s.
func TestUntilWhenAHolderMayAct(t *testing.T) {
	c := testConfig()
	wrote, twin := func(s *State) { s.Own.Stamps[0] = 7e6 }, func(s *State) { s.Own.Stamps[0], s.Own.Duplicate = 7e6, true }
	long := func(s *Snapshot) { s.Record.Lease = 40 * time.Second }
	for name, x := range map[string]struct {
		lock   Snapshot
		change func(*State)
		until  float64 // 0: nobody acts
	}{
		"one of ours":                           {lock("equal"), nil, 15},
		"with a longer lease":                   {lock("equal", long), nil, 40},
		"a peer":                                {lock("equal, unmarked"), nil, 20},
		"unreadable":                            {lock("unreadable"), nil, 15},
		"deleted":                               {lock("equal", deleted), nil, 0},
		"its record was removed":                {lock("equal", func(s *Snapshot) { s.Content = Missing }), nil, 0},
		"nobody":                                {lock("free"), nil, 0},
		"a nominee":                             {lock("nominated"), nil, 0},
		"we ourselves":                          {lock("mine, unmarked"), wrote, 0},
		"of our name before us, acting":         {lock("mine"), nil, 0},
		"of our name before us, not acting yet": {lock("mine, unmarked"), nil, 15},
		"a twin of ours":                        {lock("mine"), twin, 15},
	} {
		s := seenAt(0, x.lock)
		if x.change != nil {
			x.change(&s)
		}
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if got := c.mayActUntil(s); got != want {
			t.Errorf("%s: until %v after the sight, want %v", name, testNow.Mono.Until(got), testNow.Mono.Until(want))
		}
		if s.Earlier.Until = seconds(17); c.settledAt(s) != max(want, seconds(17)) {
			t.Errorf("%s: settled in %v", name, testNow.Mono.Until(c.settledAt(s)))
		}
	}
	// As Istio's elector does: who takes the lock from a holder acts at once. Where nobody
	// holds it, or a leader of ours was displaced, there is no such promise to keep up with.
	c.Immediate = true
	for name, want := range map[string]Instant{"lower": 0, "free": seconds(17), "peer, marker left": seconds(20)} {
		s := seenAt(0, lock(name))
		s.Earlier.Until = seconds(17)
		if got := c.settledAt(s); got != want {
			t.Errorf("immediate, %s: settled in %v", name, testNow.Mono.Until(got))
		}
	}
}

// Who outranks whom where ranks are compared by somebody else's function, or not at all.
func TestRanksOfOthers(t *testing.T) {
	external := testConfig()
	external.Ranked, external.External = false, true
	for name, x := range map[string]struct {
		lock           string
		beats, byEqual bool
		want           bool
	}{
		"beats":                         {"lower", true, false, true},
		"does not":                      {"lower", false, false, false},
		"displaced by an equal":         {"equal", true, true, false},
		"displaced, and this is lower":  {"lower", true, true, true},
		"an equal, and never displaced": {"equal", true, false, true},
	} {
		s := seenAt(0, lock(x.lock))
		s.Beats, s.Displaced.ByEqual = x.beats, x.byEqual
		if got := external.outranks(s); got != x.want {
			t.Errorf("%s: outranks: %v", name, got)
		}
	}
	unranked := testConfig()
	unranked.Ranked = false
	s := seenAt(0, lock("lower"))
	s.Beats = true
	if unranked.outranks(s) {
		t.Error("without ranks, one outranks")
	}
	for key, want := range map[string]bool{"stable": true, "canary": false, "^stable": false} {
		c := testConfig()
		if c.Key = key; c.highest(s) != want {
			t.Errorf("%s is the highest: %v", key, !want)
		}
		if c.Ranked = false; !c.highest(s) {
			t.Errorf("%s is not the highest although there are no ranks", key)
		}
		nobody := State{Default: DefaultRevision{Synced: true}}
		if c.Ranked = true; c.highest(nobody) != (key[0] != '^') {
			t.Errorf("%s, without a default revision", key)
		}
	}
}

// Why a term is over, by what stands there now.
func TestWhyATermIsOver(t *testing.T) {
	for name, x := range map[string]struct {
		lock Snapshot
		want Reason
	}{
		"deleted":               {lock("mine", deleted), LockDeleted},
		"made anew":             {lock("mine", anew), LockDeleted},
		"unreadable":            {lock("mine", unreadable), RecordUnreadable},
		"an older state":        {lock("mine", older), HistoryRewound},
		"the record is gone":    {lock("mine", func(s *Snapshot) { s.Content = Missing }), RecordEmptied},
		"released by somebody":  {lock("mine", released), RecordEmptied},
		"one of two objects":    {lock("mine", func(s *Snapshot) { s.Halves = InFirst }), HalfLost},
		"another's, in one":     {lock("equal", func(s *Snapshot) { s.Halves = InFirst }), Superseded},
		"another's, in both":    {lock("equal", func(s *Snapshot) { s.Halves = InFirst | InSecond }), Superseded},
		"ours, by another":      {lock("mine"), IdentityConflict},
		"the term's own write":  {lock("mine", func(s *Snapshot) { s.Version = 15 }), IdentityConflict},
		"another's":             {lock("equal"), Superseded},
		"older, and unreadable": {lock("mine", older, unreadable), RecordUnreadable},
	} {
		s := State{Snap: x.lock, Term: Term{UID: UID{First: "u"}, Transitions: 3, Token: 15}}
		if got := testConfig().lossReason(s); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// A record may be released that is ours, whose functions have returned: by our marker or by
// this term's own writes we know that nobody else may be acting in it.
func TestWhatMayBeReleased(t *testing.T) {
	c := testConfig()
	good := ours(seenAt(0, lock("mine")), Draining)
	unmarked := func(s *State) { s.Snap.Notes = Notes{} }
	for name, x := range map[string]struct {
		change func(*State)
		want   bool
	}{
		"our own":                     {func(*State) {}, true},
		"its functions run":           {func(s *State) { s.Alive = true }, false},
		"it was gone once":            {func(s *State) { s.Drain.Lost = RecordLost }, false},
		"deleted":                     {func(s *State) { s.Snap.Exists = false }, false},
		"unreadable":                  {func(s *State) { s.Snap.Content = Unreadable }, false},
		"another's, with our stamp":   {func(s *State) { s.Snap = lock("equal") }, false},
		"not written by us":           {func(s *State) { s.Own.Stamps[0] = 1 }, false},
		"a twin is there":             {func(s *State) { s.Own.Duplicate = true }, false},
		"its marker was removed":      {unmarked, true},
		"we never acted in it":        {func(s *State) { unmarked(s); s.Marked = false }, false},
		"of before us, by our marker": {func(s *State) { s.Term, s.Marked = Term{}, false }, true},
		"unmarked, of another term":   {func(s *State) { unmarked(s); s.Term.Transitions = 2 }, false},
	} {
		s := good
		x.change(&s)
		if got := c.releasable(s); got != x.want {
			t.Errorf("%s: may be released: %v", name, got)
		}
	}
	ended := good
	ended.Term = Term{}
	for name, x := range map[string]struct {
		s    State
		sent bool
		gone bool
		want Reason
	}{
		"time is up":                  {good, true, false, Lapsing},
		"released":                    {good, true, true, Released},
		"it was not ours":             {ended, false, true, Stopped},
		"somebody took it meanwhile":  {ours(seenAt(0, lock("equal")), Releasing), false, true, Superseded},
		"it was not ours, and we did": {ended, true, true, Released},
	} {
		x.s.Drain.Sent = x.sent
		if got := c.releaseReason(x.s, x.gone); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// What a term that has ended leaves behind for the next: nothing but its back-off.
func TestWhatATermLeavesBehind(t *testing.T) {
	c := testConfig() // RetryPeriod 2 s
	for name, x := range map[string]struct {
		change func(*State)
		off    float64 // 0: none
		steps  uint8
	}{
		"a loss":                              {func(*State) {}, 0, 2},
		"a loss after a lease":                {func(s *State) { s.BeganAt = seconds(-15.001) }, 0, 0},
		"a loss within a lease":               {func(s *State) { s.BeganAt = seconds(-15) }, 0, 2},
		"a step-down":                         {func(s *State) { s.Drain.Kind = DrainToStepDown }, 8, 3},
		"the first":                           {func(s *State) { s.Drain.Kind, s.BackOff.Steps = DrainToStepDown, 0 }, 2, 1},
		"a step-down after a lease":           {func(s *State) { s.Drain.Kind, s.BeganAt = DrainToStepDown, seconds(-16) }, 2, 1},
		"a step-down that handed over":        {func(s *State) { s.Drain.Kind = DrainToStepDown | DrainToHandOver }, 8, 3},
		"a handover":                          {func(s *State) { s.Drain.Kind = DrainToHandOver }, 0, 2},
		"one of many":                         {func(s *State) { s.Drain.Kind, s.BackOff.Steps = DrainToStepDown, 5 }, 64, 5},
		"an operator's order":                 {func(s *State) { s.Drain.Kind, s.Drain.CoolDown = DrainToHandOver, 40*time.Second }, 40, 2},
		"a step-down, by an operator's order": {func(s *State) { s.Drain.Kind, s.Drain.CoolDown = DrainToStepDown, time.Second }, 8, 3},
		"a twin":                              {func(s *State) { s.Own.Duplicate = true }, 15, 2},
	} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Drain.Lost, s.Drain.Overdue, s.Asking.Wanted, s.Drain.Sent, s.BackOff.Steps = RecordLost, true, true, true, 2
		x.change(&s)
		twin := s.Own.Duplicate
		s = c.follow(s, testNow, Superseded)
		off := Instant(0)
		if x.off > 0 {
			off = seconds(x.off)
		}
		if s.BackOff.Until != off || s.BackOff.Steps != x.steps {
			t.Errorf("%s: backs off for %v, after %d steps", name, testNow.Mono.Until(s.BackOff.Until), s.BackOff.Steps)
		}
		want := seenAt(0, lock("mine"))
		want.Phase, want.Why, want.BackOff, want.Own.Duplicate = Following, Superseded, BackOff{off, x.steps}, twin
		want.Own, want.BeganAt = s.Own, s.BeganAt
		if s != want {
			t.Errorf("%s:\nleft %+v\nwant %+v", name, s, want)
		}
	}
	// The elector ends with its term if it has to, once no call is under way.
	for op, want := range map[Op]Phase{NoOp: Done, Renew: Following} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Stopping, s.Flight.Op = true, op
		if s = c.follow(s, testNow, Superseded); s.Phase != want || s.Why != Superseded {
			t.Errorf("stopping, with a call %q: %s because %s", op, s.Phase, s.Why)
		}
	}
}

// What an elector does that is told to stop while it follows: a lock that is its own it gives
// up, unless an earlier holder may still act in it.
func TestStoppingWhileFollowing(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		lock   string
		change func(*Config, *State)
		want   Phase
	}{
		"another's":              {"equal", func(*Config, *State) {}, Done},
		"our own of before":      {"mine", func(*Config, *State) {}, Releasing},
		"our own, left to lapse": {"mine", func(c *Config, _ *State) { c.Release = false }, Done},
		"perhaps our own":        {"equal", func(_ *Config, s *State) { s.Own.AcquireUnknown = true }, Releasing},
		"somebody may act":       {"mine", func(_ *Config, s *State) { s.Earlier.Until = seconds(1) }, Done},
		"somebody acted":         {"mine", func(_ *Config, s *State) { s.Earlier.Until = testNow.Mono }, Releasing},
		"a call is under way":    {"mine", func(_ *Config, s *State) { s.Flight.Op = Read }, Following},
		"it need not stop":       {"mine", func(_ *Config, s *State) { s.Stopping = false }, Following},
	} {
		config, s := c, seenAt(0, lock(x.lock))
		s.Stopping, s.Own.Stamps[0] = true, 7e6
		if x.lock == "equal" {
			s.Own.Stamps[0] = 0
		}
		x.change(&config, &s)
		s = config.advanceFollowing(s, testNow)
		if s.Phase != x.want || s.Phase == Releasing && s.Drain.Until != seconds(10) || s.Phase != Following && s.Why != Stopped {
			t.Errorf("%s: %s because %s, until %v", name, s.Phase, s.Why, testNow.Mono.Until(s.Drain.Until))
		}
	}
}

// A claim that was acknowledged begins a term; one that was overtaken by then begins none.
func TestATermBeginsOrWasOvertaken(t *testing.T) {
	c := testConfig()
	s := ours(seenAt(0, lock("mine")), Following)
	s.Asking.Count, s.BeganAt = 3, 0
	if got := c.advance(s, testNow); got.Phase != Leading || got.Asking.Count != 0 || got.BeganAt != testNow.Mono {
		t.Errorf("acknowledged: %+v", got)
	}
	s.Marked = false
	if got := c.advance(s, testNow); got.Phase != Settling || got.Asking.Count != 0 || got.BeganAt != testNow.Mono {
		t.Errorf("acknowledged, without a marker: %+v", got)
	}
	s.Marked, s.Snap = true, lock("equal", newer)
	got := c.advance(s, testNow)
	if got.Phase != Following || got.Term != (Term{}) || got.Cover != (Cover{}) || got.Marked || got.Drain.Lost != NotLost {
		t.Errorf("overtaken: %+v", got)
	}
}

// A record that was seen not to be its term's never is again, whatever is put back.
func TestATermThatWasGoneStaysGone(t *testing.T) {
	c := testConfig()
	s := ours(seenAt(0, lock("mine")), Draining)
	s.Alive = true
	kept := s.Snap
	s.Snap = lock("equal", newer)
	s = c.advance(s, testNow)
	if s.Drain.Lost != RecordLost || s.Drain.Until != seconds(4) {
		t.Fatalf("taken by another: %+v", s)
	}
	s.Snap = kept
	if s = c.advance(s, testNow); s.Drain.Lost != RecordLost || c.ours(s) {
		t.Errorf("an older state was put back: %+v", s)
	}
	if again := c.advance(ours(seenAt(0, lock("mine")), Draining), testNow); again.Drain.Lost != NotLost {
		t.Error("a term that stands is gone")
	}
}

// Until when the recorded holder acts: of ourselves by the phase, of others by the lease, and nobody while one is only nominated.
func TestUntilWhenTheHolderActs(t *testing.T) {
	c := testConfig()
	lease := testNow.Mono.After(c.Lease)
	for _, x := range []struct {
		lock  string
		phase Phase
		want  Instant
	}{
		{"equal", Following, lease}, {"equal, unmarked", Following, lease}, {"mine, other's marker", Following, 0},
		{"mine", Following, 0}, {"mine", Settling, 0}, {"mine", Leading, lease}, {"mine", Draining, lease}, {"mine", Releasing, 0},
		{"absent", Following, 0}, {"no record", Following, 0}, {"unreadable", Following, 0}, {"free", Following, 0},
		{"nominated", Following, 0}, {"nominated me", Following, 0},
	} {
		s := seenAt(0, lock(x.lock))
		s.Phase = x.phase
		if got := c.ActsUntil(s); got != x.want {
			t.Errorf("%s, while %s: until %v, want %v", x.lock, x.phase, got, x.want)
		}
	}
}

// What a run begins with that follows another: what it knows of the lock and of those who held it, and no term or request.
func TestWhatARunTakesOverFromTheOneBefore(t *testing.T) {
	s := ours(seenAt(0, lock("mine")), Done)
	s.Stopping, s.Watch, s.Asking.Count, s.Own.AcquireUnknown = true, true, 3, true
	s.Earlier.Until, s.Displaced, s.Default = seconds(9), Displaced{NotBefore: seconds(5), Times: 1, ByEqual: true}, DefaultRevision{Synced: true}
	own := s.Own
	own.AcquireUnknown = false
	want := State{Known: Behind, Snap: s.Snap, Since: s.Since, Learned: s.Learned, Count: s.Count, Earlier: s.Earlier, Displaced: s.Displaced, Default: s.Default, Own: own}
	if got := s.Resumed(); got != want {
		t.Errorf("%+v", got)
	}
	if got := (State{}).Resumed(); got != (State{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
