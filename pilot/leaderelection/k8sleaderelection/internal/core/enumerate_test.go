package core

import (
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// stage is a phase with the state of its drain.
type stage struct {
	phase Phase
	lost  Loss
	ends  Drain // StepDown or HandOver
	late  bool  // the deadline has passed
}

// stages are the possible combinations.
var stages = func() []stage {
	all := []stage{{phase: Following}, {phase: Settling}, {phase: Done}, {phase: Leading}, {phase: Leading, ends: Drain{StepDown: true}}}
	for _, ends := range []stage{{}, {ends: Drain{StepDown: true}}, {ends: Drain{HandOver: true}}, {late: true}} {
		for phase, losses := range map[Phase][]Loss{Draining: {NotLost, ValidityLost, RecordLost}, Releasing: {NotLost, RecordLost}} {
			for _, lost := range losses {
				all = append(all, stage{phase, lost, ends.ends, ends.late})
			}
		}
	}
	return all
}()

// domain describes the states of the enumeration.
var domain = []struct {
	values int
	set    func(s *State, n int)
}{
	{len(stages), func(s *State, n int) {
		s.Phase, s.Drain = stages[n].phase, stages[n].ends
		s.Drain.Lost = stages[n].lost
		s.Drain.Sent = s.Phase == Releasing && s.Drain.HandOver
		s.Drain.Until = around(1, 2*time.Second)
		if stages[n].late {
			s.Drain.Until = around(0, 2*time.Second)
		}
	}},
	{2, func(s *State, n int) { s.Flight.Op = []Op{NoOp, Renew}[n] }}, // only whether a call is in flight matters
	{3, func(s *State, n int) { s.Known = Knowledge(n) }},             // StaleGap equals Stale until a reply arrives
	{2, func(s *State, n int) { s.Stopping = n == 1 }},
	{2, func(s *State, n int) { s.Watch = n == 1 }},
	{2, func(s *State, n int) { s.Running = n == 1 }},
	{2, func(s *State, n int) { s.Marked = n == 1 }},
	{3, func(s *State, n int) { s.Own.AcquireUnknown, s.Unfit = n == 1, n == 2 }},
	{2, func(s *State, n int) { s.Own.Duplicate = n == 1 }},
	{2, func(s *State, n int) { // own term, or a term that was replaced
		if n == 1 {
			s.Own = wroteLast(s.Own, s.Snap.Record)
			s.Term = Term{LockUID: s.Snap.UID, Transitions: s.Snap.Record.Transitions, Token: 15}
		}
	}},
	{2, func(s *State, n int) { s.Since.Record = around(n, 20*time.Second) }},
	{2, func(s *State, n int) {
		next := around(n, time.Second)
		s.Effort.Reads.Next, s.Effort.Writes.Next, s.Effort.Requests.Next = next, next, next
		if n == 1 && s.Known.Outdated() { // reads fail, and a write is due
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

// around returns testNow - d or testNow + d.
func around(n int, d time.Duration) Instant {
	if n == 0 {
		return testNow.Mono - Instant(d)
	}
	return testNow.Mono.After(d)
}

// setsPossible is the number of values in domain that impossible needs.
const setsPossible = 8

// impossible reports states that no history leads to.
func impossible(s *State) bool {
	acts := s.Phase == Leading || s.Phase == Draining
	return s.Running && !acts && s.Phase != Done || s.Phase == Leading && !(s.Running && s.Marked) ||
		s.Own.AcquireUnknown && s.Phase != Following || s.Known == Unread && s.Phase != Following && s.Phase != Done
}

// TestDecideEnumerated visits every combination of domain and checks the action of decide. So the checks hold
// for every history.
func TestDecideEnumerated(t *testing.T) {
	often := debug.SetGCPercent(800) // reduces the time for garbage collection
	t.Cleanup(func() { debug.SetGCPercent(often) })
	c := testConfig()
	var mu sync.Mutex
	found := transitions{}
	t.Run("all", func(t *testing.T) { // waits for its parallel subtests
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
		Why: before, Default: DefaultRevision{Synced: true, Revision: "stable"}, Own: Own{Renewed: around(0, time.Second)},
		Sight:        Sight{Snap: snap, Since: Since{Hold: testNow.Mono, Request: testNow.Mono}, PollAt: around(1, time.Second)},
		Coordination: Coordination{GiveWay: snap.Preferred != "", CoordinatorSeen: true},
	}
	states(start, func(s *State) {
		if n++; n%visitEvery != 0 || t.Failed() {
			return
		}
		visited++
		settled := found.follow(c, *s)
		a := c.decide(&settled, testNow)
		if why := c.wrong(settled, a); why != "" {
			t.Errorf("%s\nbefore: %+v\nstate:  %+v\naction: %+v", why, *s, settled, a)
		}
		if again := c.advance(settled, testNow); again != settled {
			t.Errorf("advance is not idempotent: from %+v\nto %+v", settled, again)
		}
	})
	t.Logf("%d states", visited)
	return found
}

// states calls visit with every possible state. Prefixes are shared, because there are millions.
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

// wrong returns the broken rule, or an empty string.
func (c Config) wrong(s State, a Action) string {
	now := testNow.Mono
	switch {
	case a.Run != (s.Phase == Leading):
		return "Run differs from Leading"
	case a.Gate != (Validity{}) && s.Phase != Leading && (s.Phase != Draining || s.Drain.Lost != NotLost):
		return "open gate without a right to act"
	case a.Gate != (Validity{}) && a.Gate != s.Validity:
		return "the gate differs from the validity"
	case s.Phase == Leading && a.Gate.Left(testNow) <= 0:
		return "leading without validity"
	case a.Why == "":
		return "no reason"
	case a.Op != NoOp && s.Flight.Op != NoOp:
		return "two calls in flight"
	case a.Op != NoOp && now < s.Effort.of(a.Op).Next:
		return "a call during back-off"
	case a.Op != NoOp && s.Phase == Done:
		return "a call after the end"
	case a.Op == NoOp && a.Wake <= now:
		return "a wake-up in the past without a call"
	case a.Op == NoOp && a.Wake == Never && s.Flight.Op == NoOp && s.Phase != Done && !s.Running && !s.Unfit:
		return "no call and no wake-up"
	}
	return c.wrongWrite(s, a)
}

func (c Config) wrongWrite(s State, a Action) string {
	if a.Op == NoOp || a.Op == Read {
		return ""
	}
	mine := s.Snap.Held() && s.Snap.Record.Holder == c.Self
	marked := a.Annotations.Marker.Matches(a.Record)
	guarded := a.Op == Renew && (s.Effort.Reads.Fails > 0 || s.Known == StaleGap && s.Phase == Leading)
	switch {
	case a.Base != s.Snap || s.Known == Unread || s.Known.Outdated() && !guarded:
		return "a write that is not based on the newest snapshot"
	case a.Op == SendRequest:
		return c.wrongAsk(s, a)
	case a.Op == HandOver:
		return c.wrongHandOver(s, a)
	case a.Op != Release && (a.Record.Holder != c.Self || a.Record.Key != c.Key || a.Record.Lease != c.ownLease(a.Annotations.Marker.Matches(a.Record))):
		return "a write with the wrong holder"
	case a.Record.Renewed == s.Snap.Record.Renewed:
		return "a write that changes nothing"
	case a.Op == Acquire && c.Coordinated && !mine && testNow.Mono < c.uncoordinatedTime(&s):
		return "acquired without being named"
	case a.Op == Acquire && s.Unfit && s.Phase == Following:
		return "an unfit candidate campaigns"
	case a.Op == Acquire && s.Phase != Following, a.Op == Acquire && s.Running:
		return "a term begins in the wrong state"
	case a.Op == Acquire && marked && testNow.Mono < c.settledAt(&s):
		return "a marker while an earlier holder may act"
	case a.Op == Renew && !c.ownsTerm(&s):
		return "a renewal of another term"
	case a.Op == Renew && s.Phase == Settling && marked && !s.Marked && testNow.Mono < s.Earlier.SettleAt:
		return "a marker while settling"
	case a.Op == Renew && s.Phase == Leading && !marked:
		return "a renewal of a leader without a marker"
	case a.Op == Release && (!mine || s.Running || s.Own.Duplicate || a.Record.Holder != "" || a.Annotations != Annotations{}):
		return "a release of another record, or before the drain"
	}
	return ""
}

// coordinatedSnapshots returns locks of a coordinated election.
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

// enumerateCoordinated enumerates a coordinated candidate and, with a preferred candidate, also an
// uncoordinated one.
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
	case c.Coordinated && testNow.Mono < c.uncoordinatedTime(&s):
		return "a request in a coordinated election"
	case s.Phase != Following || a.Record != s.Snap.Record || a.Annotations.Marker != s.Snap.Annotations.Marker:
		return "a request that changes more than the request"
	case r.Identity != c.Self || r.Holder != s.Snap.Record.Holder || r.Transitions != s.Snap.Record.Transitions || r.Accepted:
		return "a request with a wrong name or term"
	case s.Unfit:
		return "a request while unfit"
	case s.Snap.Annotations.Marker.Unfit:
		return ""
	case !Outranks(c.Key, s.Snap.Record.Key, s.Default):
		return "a request without rank"
	case testNow.Mono < s.holdEnds():
		return "a request despite a hold"
	}
	return ""
}

func (c Config) wrongHandOver(s State, a Action) string {
	r := c.handoverTarget(&s, testNow.Mono)
	switch {
	case r.Identity == "" || !c.Coordinated && r != s.Snap.Annotations.Request || r != s.Snap.Annotations.Request && r.Identity != s.Snap.Preferred:
		return "a handover to the wrong candidate"
	case s.Phase != Releasing || s.Running || !c.ownsTerm(&s):
		return "a handover of another record, or before the drain"
	case a.Record.Holder != r.Identity || a.Record.Key != r.Key || a.Annotations.Nominated != Nomination{Identity: r.Identity, Transitions: a.Record.Transitions} ||
		a.Annotations.Marker != Marker{} || a.Annotations.Request != Request{}:
		return "a handover with wrong content"
	case a.Annotations.Hold != (Hold{}) && (r.Reason != record.ForOperator || !a.Annotations.Hold.Matches(a.Record)):
		return "a hold without an operator"
	case a.Record.Transitions <= s.Snap.Record.Transitions:
		return "a handover that does not count"
	}
	return ""
}
