package core

import (
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

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
		for phase, losses := range map[Phase][]Loss{Draining: {NotLost, ValidityLost, RecordLost}, Releasing: {NotLost, RecordLost}} {
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
	{2, func(s *State, n int) { s.Running = n == 1 }},
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
		s.Effort.Reads.Next, s.Effort.Writes.Next, s.Effort.Requests.Next = next, next, next
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
			s.Validity = at.Plus(10 * time.Second)
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
	return s.Running && !acts && s.Phase != Done || s.Phase == Leading && !(s.Running && s.Marked) ||
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

// wrong says what about an action must not be, or nothing.
func (c Config) wrong(s State, a Action) string {
	now := testNow.Mono
	switch {
	case a.Run != (s.Phase == Leading):
		return "work is wanted in Leading, and only there"
	case a.Gate != (Validity{}) && s.Phase != Leading && (s.Phase != Draining || s.Drain.Lost != NotLost):
		return "the gate is open without a right to act"
	case a.Gate != (Validity{}) && a.Gate != s.Validity:
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
	case a.Op == NoOp && a.Wake == Never && s.Flight.Op == NoOp && s.Phase != Done && !s.Running && !s.Unfit:
		return "nothing to do and nothing to wait for"
	}
	return c.wrongWrite(s, a)
}

func (c Config) wrongWrite(s State, a Action) string {
	if a.Op == NoOp || a.Op == Read {
		return ""
	}
	mine := s.Snap.Held() && s.Snap.Record.Holder == c.Self
	marked := a.Annotations.Marker.matches(a.Record)
	switch {
	case a.Base != s.Snap || s.Known == Unread || s.Known.Outdated() && !(a.Op == Renew && s.Effort.Reads.Fails > 0):
		return "a write that is not decided on the newest snapshot"
	case a.Op == SendRequest:
		return c.wrongAsk(s, a)
	case a.Op == HandOver:
		return c.wrongHandOver(s, a)
	case a.Op != Release && (a.Record.Holder != c.Self || a.Record.Key != c.Key || a.Record.Lease != c.Lease):
		return "a write in another name than one's own"
	case a.Record.Renewed == s.Snap.Record.Renewed:
		return "a write that changes nothing"
	case a.Op == Acquire && c.Coordinated && !mine && testNow.Mono < c.uncoordinatedTime(s):
		return "one that was not named takes the lock"
	case a.Op == Acquire && s.Unfit && s.Phase == Following:
		return "one that is unfit campaigns"
	case a.Op == Acquire && s.Phase != Following, a.Op == Acquire && s.Running:
		return "a term begins where none may"
	case a.Op == Acquire && marked && testNow.Mono < c.settledAt(s):
		return "a marker although an earlier holder may act"
	case a.Op == Renew && !c.ownsTerm(s):
		return "a renewal of a term that is not one's own"
	case a.Op == Renew && s.Phase == Settling && marked && !s.Marked && testNow.Mono < s.Earlier.SettleAt:
		return "a marker while settling"
	case a.Op == Renew && s.Phase == Leading && !marked:
		return "a leader's renewal without its marker"
	case a.Op == Release && (!mine || s.Running || s.Own.Duplicate || a.Record.Holder != "" || a.Annotations != Annotations{}):
		return "a release of what is not one's own, or of what runs"
	}
	return ""
}

// coordinatedSnapshots is a lock of each kind that one meets whose holder a coordinator chooses.
func coordinatedSnapshots() map[string]Snapshot {
	all := map[string]Snapshot{}
	for name, of := range map[string]string{
		"coordinated, free": "free", "coordinated, absent": "absent", "coordinated, mine": "mine", "coordinated, mine, asked": "mine, asked",
		"coordinated, lower, hands over": "lower, hands over", "named me": "nominated me", "named another": "nominated",
	} {
		s := testSnapshots()[of]
		s.Strategy = s.Exists
		s.Annotations.Nominated.Uncounted = s.Annotations.Nominated != Nomination{}
		all[name] = s
	}
	preferred := all["coordinated, mine"]
	preferred.Preferred = "b"
	all["another is preferred"] = preferred
	return all
}

// enumerateCoordinated is enumerate for one that waits to be named and, where that has something to do, for one that does not.
func (c Config) enumerateCoordinated(t *testing.T, snap Snapshot) transitions {
	waits := c
	waits.Coordinated = true
	found := waits.enumerate(t, snap)
	if snap.Preferred != "" {
		found.add(c.enumerate(t, snap))
	}
	return found
}

func (c Config) wrongAsk(s State, a Action) string {
	r := a.Annotations.Request
	switch {
	case c.Coordinated && testNow.Mono < c.uncoordinatedTime(s):
		return "a request beside a coordinator"
	case s.Phase != Following || a.Record != s.Snap.Record || a.Annotations.Marker != s.Snap.Annotations.Marker:
		return "a request that changes more than the request"
	case r.Identity != c.Self || r.Holder != s.Snap.Record.Holder || r.Transitions != s.Snap.Record.Transitions || r.Accepted:
		return "a request in another name, or to another term"
	case s.Unfit:
		return "one that is unfit asks for the lock"
	case s.Snap.Annotations.Marker.Unfit:
		return ""
	case !Outranks(c.Key, s.Snap.Record.Key, s.Default):
		return "a request without rank"
	case testNow.Mono < s.holdEnds():
		return "a request against an operator's hold"
	}
	return ""
}

func (c Config) wrongHandOver(s State, a Action) string {
	r := c.handoverTarget(s, testNow.Mono)
	switch {
	case r.Identity == "" || !c.Coordinated && r != s.Snap.Annotations.Request || r != s.Snap.Annotations.Request && r.Identity != s.Snap.Preferred:
		return "a handover to somebody who is not wanted"
	case s.Phase != Releasing || s.Running || !c.ownsTerm(s):
		return "a handover of what is not one's own, or of what runs"
	case a.Record.Holder != r.Identity || a.Record.Key != r.Key || a.Annotations.Nominated != Nomination{Identity: r.Identity, Transitions: a.Record.Transitions} ||
		a.Annotations.Marker != Marker{} || a.Annotations.Request != Request{}:
		return "a handover to somebody who did not ask"
	case a.Annotations.Hold != (Hold{}) && (r.Reason != ForOperator || !a.Annotations.Hold.matches(a.Record)):
		return "a hold that no operator asked for"
	case a.Record.Transitions <= s.Snap.Record.Transitions:
		return "a handover that does not count a term"
	}
	return ""
}
