package core

import (
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// testConfig is the 15/10/2 timing, with names as short as traces like them.
func testConfig() Config {
	return Config{
		Self: "a", Key: "stable", Ranked: true, Release: true,
		Timing: Timing{
			Lease: 15 * time.Second, Cover: 10 * time.Second, Retry: 2 * time.Second,
			CallTimeout: 4 * time.Second, DrainLimit: 4 * time.Second, StopLimit: 30 * time.Second,
			PeerGrace: 5 * time.Second, RankDelay: 25 * time.Millisecond,
		},
	}
}

// testNow leaves room for instants before it.
var testNow = Moment{Mono: Instant(time.Hour), Boot: int64(2 * time.Hour), Wall: 1_780_000_000e9}

// testSnapshots is one lock of each kind that a candidate named a can meet.
func testSnapshots() map[string]Snapshot {
	record := func(holder, key string) Record {
		return Record{Holder: holder, Key: key, Lease: 15 * time.Second, Acquired: 5e6, Renewed: 7e6, Transitions: 3}
	}
	lock := func(r Record, n Notes) Snapshot {
		return Snapshot{Exists: true, UID: UID{First: "u"}, Version: 20, Content: Readable, Sum: 1, Record: r, Notes: n}
	}
	marker := func(id string, transitions int) Notes {
		return Notes{Marker: Marker{Identity: id, Transitions: transitions}}
	}
	asked := func(accepted bool) Notes {
		n := marker("a", 3)
		n.Request = Request{Identity: "b", Key: "canary", Holder: "a", Transitions: 3, Seconds: 15, Accepted: accepted}
		return n
	}
	handsOver := marker("b", 3)
	handsOver.Marker.Handover = true
	hold := func(holder string) Hold {
		return Hold{Holder: holder, Transitions: 3, Seconds: 10, Requester: "operator", Reason: HoldForPause}
	}
	operator := func(identity string) Notes {
		n := asked(false)
		n.Request.Identity, n.Request.Reason, n.Request.HoldSeconds = identity, ForOperator, 60
		return n
	}
	unfit, paused, pausedAsked, pausedPeer := handsOver, handsOver, asked(false), Notes{Hold: hold("b")}
	unfit.Marker.Unfit = true
	paused.Hold, pausedAsked.Hold = hold("b"), hold("a")
	half := func(s Snapshot) Snapshot { s.Halves = InFirst; return s }
	before15 := func(s Snapshot) Snapshot { s.Version = 14; return s } // an older state than the term's first write
	untouched := func(r Record) Record { r.Renewed = r.Acquired; return r }
	nominatedByOperator := Notes{Nominated: Nomination{Identity: "a", Transitions: 3}, Hold: hold("a")}
	nominatedByOperator.Hold.Reason = HoldForTransfer
	return map[string]Snapshot{
		"equal, unfit":           lock(record("b", "stable"), unfit),
		"lower, held":            lock(record("b", "canary"), paused),
		"lower, unmarked, held":  lock(record("b", "canary"), pausedPeer),
		"mine, asked, held":      lock(record("a", "stable"), pausedAsked),
		"mine, to transfer":      lock(record("a", "stable"), operator("b")),
		"mine, to step down":     lock(record("a", "stable"), operator("")),
		"transferred to me":      lock(untouched(record("a", "stable")), nominatedByOperator),
		"lower, hands over":      lock(record("b", "canary"), handsOver),
		"mine, asked":            lock(record("a", "stable"), asked(false)),
		"mine, accepted":         lock(record("a", "stable"), asked(true)),
		"absent":                 {Version: 20},
		"no record":              {Exists: true, UID: UID{First: "u"}, Version: 20},
		"no record, marker left": {Exists: true, UID: UID{First: "u"}, Version: 20, Notes: marker("b", 3)},
		"unreadable":             {Exists: true, UID: UID{First: "u"}, Version: 20, Content: Unreadable, Sum: 2},
		"free":                   lock(record("", ""), Notes{}),
		"free, marker left":      lock(record("", ""), marker("b", 2)),
		"free, own marker left":  lock(record("", ""), marker("a", 2)),
		"mine":                   lock(record("a", "stable"), marker("a", 3)),
		"mine, in one of two":    half(lock(record("a", "stable"), marker("a", 3))),
		"mine, from before":      before15(lock(record("a", "stable"), marker("a", 3))),
		"mine, unmarked":         lock(record("a", "stable"), Notes{}),
		"mine, other's marker":   lock(record("a", "stable"), marker("b", 2)),
		"equal":                  lock(record("b", "stable"), marker("b", 3)),
		"equal, unmarked":        lock(record("b", "stable"), Notes{}),
		"lower":                  lock(record("b", "canary"), marker("b", 3)),
		"lower, unmarked":        lock(record("b", "canary"), Notes{}),
		"peer, marker left":      lock(record("istiod", "stable"), marker("b", 2)),
		"nominated":              lock(untouched(record("b", "stable")), Notes{Nominated: Nomination{Identity: "b", Transitions: 3}}),
		"nominated me":           lock(untouched(record("a", "stable")), Notes{Nominated: Nomination{Identity: "a", Transitions: 3}}),
	}
}

// stage is a phase, and how far its term has come to its end.
type stage struct {
	phase Phase
	lost  Loss
	kind  DrainKind
	late  bool // its time is up
}

// stages are those that a history can lead to. What DrainToStepDown adds to DrainToHandOver is
// the back-off that follows.
var stages = func() []stage {
	all := []stage{{phase: Following}, {phase: Settling}, {phase: Done}, {phase: Leading}, {phase: Leading, kind: DrainToStepDown}}
	for _, ends := range []stage{{}, {kind: DrainToStepDown}, {kind: DrainToHandOver}, {late: true}} {
		for phase, losses := range map[Phase][]Loss{Draining: {NotLost, CoverLost, RecordLost}, Releasing: {NotLost, RecordLost}} {
			for _, lost := range losses {
				all = append(all, stage{phase, lost, ends.kind, ends.late})
			}
		}
	}
	return all
}()

// domain describes every state that the enumeration visits, by the numbers chosen.
var domain = []struct {
	values int
	set    func(s *State, n int)
}{
	{len(stages), func(s *State, n int) {
		s.Phase, s.Drain.Lost, s.Drain.Kind = stages[n].phase, stages[n].lost, stages[n].kind
		s.Drain.Sent = s.Phase == Releasing && s.Drain.Kind == DrainToHandOver
		s.Drain.Until = around(1, 2*time.Second)
		if stages[n].late {
			s.Drain.Until = around(0, 2*time.Second)
		}
	}},
	{5, func(s *State, n int) { s.Flight.Op = Op(n) }},
	{3, func(s *State, n int) { s.Known = Knowledge(n) }}, // BehindGap is Behind, until an answer comes
	{2, func(s *State, n int) { s.Stopping = n == 1 }},
	{2, func(s *State, n int) { s.Watch = n == 1 }},
	{2, func(s *State, n int) { s.Alive = n == 1 }},
	{2, func(s *State, n int) { s.Marked = n == 1 }},
	{3, func(s *State, n int) { s.Own.AcquireUnknown, s.Unfit = n == 1, n == 2 }},
	{2, func(s *State, n int) { s.Own.Duplicate = n == 1 }},
	{2, func(s *State, n int) { // ours, or a term that has been overtaken
		if n == 1 {
			s.Own.Stamps[0] = s.Snap.Record.Renewed
			s.Term = Term{UID: s.Snap.UID, Transitions: s.Snap.Record.Transitions, Token: 15}
		}
	}},
	{2, func(s *State, n int) { s.Since.Record = around(n, 20*time.Second) }},
	{2, func(s *State, n int) {
		next := around(n, time.Second)
		s.Effort.Reads.Next, s.Effort.Writes.Next, s.Effort.Asks.Next = next, next, next
		if n == 1 && s.Known.Outdated() { // reads fail, and a write may be tried
			s.Effort.Reads.Fails, s.Effort.Writes.Next = 1, around(0, time.Second)
		}
	}},
	{2, func(s *State, n int) {
		s.Earlier.Until, s.Earlier.SettleAt = around(n, 3*time.Second), around(n, 3*time.Second)
	}},
	{2, func(s *State, n int) {
		if s.Phase == Leading || s.Phase == Draining && s.Drain.Lost == NotLost || s.Phase == Settling {
			at := testNow
			if n == 0 {
				at.Mono -= Instant(11 * time.Second)
				at.Boot -= int64(11 * time.Second)
				at.Wall -= int64(11 * time.Second)
			}
			s.Cover = at.Plus(10 * time.Second)
		}
	}},
}

// around is before testNow by d, or after it.
func around(n int, d time.Duration) Instant {
	if n == 0 {
		return testNow.Mono - Instant(d)
	}
	return testNow.Mono.After(d)
}

// setsPossible is how many of the domain set what impossible asks for.
const setsPossible = 8

// impossible leaves out what no history leads to.
func impossible(s *State) bool {
	acts := s.Phase == Leading || s.Phase == Draining
	return s.Alive && !acts && s.Phase != Done || s.Phase == Leading && !(s.Alive && s.Marked) ||
		s.Own.AcquireUnknown && s.Phase != Following || s.Known == Unread && s.Phase != Following && s.Phase != Done
}

// TestDecideEnumerated visits every combination of the domain, settles it, and checks
// what decide makes of it. What holds here holds whatever the history was.
func TestDecideEnumerated(t *testing.T) {
	often := debug.SetGCPercent(800) // half of the time would go into small garbage
	t.Cleanup(func() { debug.SetGCPercent(often) })
	c := testConfig()
	var mu sync.Mutex
	found := transitions{}
	t.Run("all", func(t *testing.T) { // which waits for what runs side by side in it
		each := func(snapshots map[string]Snapshot, enumerate func(*testing.T, Snapshot) transitions) {
			for name, snap := range snapshots {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					of := enumerate(t, snap)
					mu.Lock()
					defer mu.Unlock()
					found.add(of)
				})
			}
		}
		each(testSnapshots(), c.enumerate)
		each(successorSnapshots(), c.enumerateSuccessor)
		each(coordinatedSnapshots(), c.enumerateCoordinated)
	})
	if !t.Failed() && visitEvery == 1 {
		found.compare(t)
	}
}

func (c Config) enumerate(t *testing.T, snap Snapshot) transitions {
	n, visited, found := 0, 0, transitions{}
	start := State{
		Why: before, Snap: snap, Default: DefaultRevision{Synced: true, Revision: "stable"}, PollAt: around(1, time.Second),
		Own: Own{Renewed: around(0, time.Second)}, Since: Since{Hold: testNow.Mono, Request: testNow.Mono},
	}
	states(start, func(s *State) {
		if n++; n%visitEvery != 0 || t.Failed() {
			return
		}
		visited++
		settled := found.follow(c, *s)
		a := c.decide(settled, testNow)
		if why := c.wrong(settled, a); why != "" {
			t.Errorf("%s\nbefore: %+v\nstate:  %+v\naction: %+v", why, *s, settled, a)
		}
		if again := c.advance(settled, testNow); again != settled {
			t.Errorf("settling twice is not settling once: from %+v\nto %+v", settled, again)
		}
	})
	t.Logf("%d states", visited)
	return found
}

// states calls visit with every possible state of the domain that begins as start. What has been set so far is
// kept for all that follows it, and what is impossible is not followed: there are millions.
func states(start State, visit func(*State)) {
	sofar := make([]State, len(domain)+1)
	sofar[0] = start
	var set func(i int)
	set = func(i int) {
		switch {
		case i == setsPossible && impossible(&sofar[i]):
		case i == len(domain):
			visit(&sofar[i])
		default:
			for n := range domain[i].values {
				sofar[i+1] = sofar[i]
				domain[i].set(&sofar[i+1], n)
				set(i + 1)
			}
		}
	}
	set(0)
}

// TestWrong shows that the enumeration can fail.
func TestWrong(t *testing.T) {
	c := testConfig()
	leading := State{
		Phase: Leading, Known: Current, Alive: true, Marked: true, Snap: testSnapshots()["mine"],
		Own: Own{Stamps: [4]Stamp{7e6}}, Term: Term{UID: UID{First: "u"}, Transitions: 3, Token: 15}, Cover: testNow.Plus(time.Second),
	}
	good := Action{Why: Holding, Work: true, Gate: leading.Cover, Wake: leading.Cover.Mono}
	if why := c.wrong(leading, good); why != "" {
		t.Fatalf("a good action is called wrong: %s", why)
	}
	lost, following := leading, leading
	lost.Phase, lost.Drain.Lost = Draining, CoverLost
	following.Phase, following.Alive, following.Earlier.Until = Following, false, Never
	asleep, open, sends, early := good, good, good, Action{Why: Free, Wake: Never}
	asleep.Wake = testNow.Mono
	open.Work = false
	sends.Op, sends.Base, sends.Record = Renew, leading.Snap, leading.Snap.Record
	early = early.write(Acquire, following.Snap, Record{Holder: c.Self, Key: c.Key, Lease: c.Lease, Transitions: 4}, Notes{Marker: Marker{Identity: c.Self, Transitions: 4}})
	for _, bad := range []struct {
		s    State
		a    Action
		want string
	}{
		{leading, open, "work is wanted in Leading, and only there"},
		{lost, open, "the gate is open without a right to act"},
		{leading, asleep, "a wake-up in the past with nothing to do: a hot loop"},
		{leading, sends, "a write that changes nothing"},
		{following, early, "a marker although an earlier holder may act"},
	} {
		if why := c.wrong(bad.s, bad.a); why != bad.want {
			t.Errorf("wrong says %q, want %q", why, bad.want)
		}
	}
}

// wrong says what about an action must not be, or nothing.
func (c Config) wrong(s State, a Action) string {
	now := testNow.Mono
	switch {
	case a.Work != (s.Phase == Leading):
		return "work is wanted in Leading, and only there"
	case a.Gate != (Cover{}) && s.Phase != Leading && (s.Phase != Draining || s.Drain.Lost != NotLost):
		return "the gate is open without a right to act"
	case a.Gate != (Cover{}) && a.Gate != s.Cover:
		return "the gate does not end with the cover"
	case s.Phase == Leading && a.Gate.Left(testNow) <= 0:
		return "leading without cover"
	case a.Why == "":
		return "no reason"
	case a.Op != NoOp && s.Flight.Op != NoOp:
		return "a second call while one is in flight"
	case a.Op != NoOp && now < s.Effort.of(a.Op).Next:
		return "a call before the back-off is over"
	case a.Op != NoOp && s.Phase == Done:
		return "a call after the end"
	case a.Op == NoOp && a.Wake <= now:
		return "a wake-up in the past with nothing to do: a hot loop"
	case a.Op == NoOp && a.Wake == Never && s.Flight.Op == NoOp && s.Phase != Done && !s.Alive && !s.Unfit:
		return "nothing to do and nothing to wait for"
	}
	return c.wrongWrite(s, a)
}

func (c Config) wrongWrite(s State, a Action) string {
	if a.Op == NoOp || a.Op == Read {
		return ""
	}
	mine := s.Snap.Held() && s.Snap.Record.Holder == c.Self
	marked := a.Notes.Marker.names(a.Record)
	if a.Record.Holder == Successors {
		return c.wrongKept(s, a)
	}
	switch {
	case a.Base != s.Snap || s.Known == Unread || s.Known.Outdated() && !(a.Op == Renew && s.Effort.Reads.Fails > 0):
		return "a write that is not decided on the newest snapshot"
	case a.Op == Ask:
		return c.wrongAsk(s, a)
	case a.Op == HandOver:
		return c.wrongHandOver(s, a)
	case a.Op != Release && (a.Record.Holder != c.Self || a.Record.Key != c.Key || a.Record.Lease != c.Lease):
		return "a write in another name than one's own"
	case a.Record.Renewed == s.Snap.Record.Renewed:
		return "a write that changes nothing"
	case s.Snap.bySuccessors() && c.Successor:
		return "a record that all keep is taken, or given up"
	case a.Notes.Successor != (c.Successor && a.Op != Release):
		return "a write that does not say whose it is"
	case c.Successor && marked:
		return "a successor's marker, which says that it acts by its own name"
	case a.Op == Acquire && c.Coordinated && !mine && testNow.Mono < c.uncoordinatedFrom(s):
		return "one that was not named takes the lock"
	case a.Op == Acquire && s.Unfit && s.Phase == Following:
		return "one that is unfit campaigns"
	case a.Op == Acquire && s.Phase != Following, a.Op == Acquire && s.Alive:
		return "a term begins where none may"
	case a.Op == Acquire && marked && testNow.Mono < c.settledAt(s):
		return "a marker although an earlier holder may act"
	case a.Op == Renew && !c.ours(s):
		return "a renewal of a term that is not one's own"
	case a.Op == Renew && s.Phase == Settling && marked && !s.Marked && testNow.Mono < s.Earlier.SettleAt:
		return "a marker while settling"
	case a.Op == Renew && s.Phase == Leading && !marked:
		return "a leader's renewal without its marker"
	case a.Op == Release && (!mine || s.Alive || s.Own.Duplicate || a.Record.Holder != "" || a.Notes != Notes{}):
		return "a release of what is not one's own, or of what runs"
	}
	return ""
}
