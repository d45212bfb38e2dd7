package core

import (
	"testing"
	"time"
)

// For how long a holder counts as having renewed without an answer. It has so for 5 s; the
// request was seen at testNow, as the record was, and both are seen again 2 s later.
func TestForHowLongAHolderIsMute(t *testing.T) {
	c := testConfig()
	request := Request{Identity: "a", Key: "stable", Holder: "b", Transitions: 3, Seconds: 30}
	was := lock("lower, hands over", func(s *Snapshot) { s.Notes.Request = request })
	accept := asked(func(r *Request) { r.Accepted = true })
	others := asked(func(r *Request) { r.Identity = "c" })
	astray := asked(func(r *Request) { r.Holder, r.Refused = "c", refusedNoRank })
	with := func(changes ...func(*Snapshot)) Snapshot {
		s := was
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	for name, x := range map[string]struct {
		was, next Snapshot
		state     func(*State)
		after     float64
		want      time.Duration
	}{
		"it renews":                       {was, with(newer, renewed), nil, 2, 7},
		"it renews after a pause":         {was, with(newer, renewed), nil, 9, 9},
		"a label":                         {was, with(newer), nil, 2, 5},
		"in the same version":             {was, with(renewed), nil, 2, 7},
		"in an older state":               {was, with(older, renewed), nil, 2, 0},
		"asked later than seen":           {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(1) }, 2, 6},
		"seen later than asked":           {was, with(newer, renewed), func(s *State) { s.Since.Request, s.Since.Record = seconds(-3), seconds(1) }, 2, 6},
		"asked again meanwhile":           {was, with(newer, renewed, asked(func(r *Request) { r.Seconds = 31 })), nil, 2, 5},
		"it refuses":                      {was, with(newer, renewed, asked(func(r *Request) { r.Refused = refusedNoRank })), nil, 2, 0},
		"it accepts":                      {was, with(newer, renewed, accept), nil, 2, 0},
		"it has accepted":                 {with(accept), with(newer, renewed, accept), nil, 2, 7},
		"it has accepted another's":       {with(others, accept), with(newer, renewed, others, accept), nil, 2, 7},
		"another has asked":               {with(others), with(newer, renewed, others), nil, 2, 5},
		"the request has run out":         {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(-30) }, 2, 5},
		"another was asked, who refused":  {with(astray), with(newer, renewed, astray), nil, 2, 5},
		"another holder":                  {was, with(newer, to("c", 4), marked("c", 4)), nil, 2, 0},
		"another term of its own":         {was, with(newer, to("b", 4), marked("b", 4)), nil, 2, 0},
		"another, of the same number":     {was, with(newer, renewed, func(s *Snapshot) { s.Record.Acquired = s.Record.Renewed }), nil, 2, 0},
		"another, by its old marker":      {was, with(newer, to("b", 4)), nil, 2, 0},
		"it took its marker back":         {was, with(newer, renewed, marked("", 0)), nil, 2, 0},
		"it has another marker":           {was, with(newer, renewed, func(s *Snapshot) { s.Notes.Marker.Unfit = true }), nil, 2, 0},
		"the lock was made anew":          {was, with(newer, renewed, anew), nil, 2, 0},
		"it was no leader of ours before": {with(marked("c", 2)), with(newer, renewed, marked("c", 2)), nil, 2, 0},
	} {
		s := seenAt(0, x.was)
		if s.Asking.Ignored = 5 * time.Second; x.state != nil {
			x.state(&s)
		}
		if got := c.observe(s, later(x.after, x.next)).Asking.Ignored; got != x.want*time.Second {
			t.Errorf("%s: for %v, want %v", name, got, x.want*time.Second)
		}
	}
}

// A holder that has been mute for longer than a lease is asked no more, and is waited for like
// a peer; one that has accepted has its StopLimit beside.
func TestWhoIsTakenForMute(t *testing.T) {
	c := testConfig() // lease 15 s, StopLimit 30 s
	accepted := func(s *Snapshot) {
		s.Notes.Request = Request{Identity: "c", Key: "canary", Holder: "b", Transitions: 3, Accepted: true}
	}
	for name, x := range map[string]struct {
		lock Snapshot
		mute time.Duration // beyond this
	}{
		"a holder":                   {lock("lower, hands over"), 15 * time.Second},
		"of a longer lease":          {lock("lower, hands over", func(s *Snapshot) { s.Record.Lease = 40 * time.Second }), 40 * time.Second},
		"that has accepted":          {lock("lower, hands over", accepted), 45 * time.Second},
		"that accepted another time": {lock("lower, hands over", accepted, asked(func(r *Request) { r.Transitions = 2 })), 15 * time.Second},
		"that is asked":              {lock("lower, hands over", accepted, asked(func(r *Request) { r.Accepted = false })), 15 * time.Second},
	} {
		s := seenAt(0, x.lock)
		for more, want := range map[time.Duration]bool{0: false, 1: true} {
			s.Asking.Ignored = x.mute + more
			grace := map[bool]time.Duration{true: c.PeerGrace}[want]
			if c.ignoresRequests(s) != want || c.canAsk(s) == want || c.mayActUntil(s) != c.ExpiresAt(s).After(grace) {
				t.Errorf("%s, without an answer for %v: mute %v, can be asked %v, may act for %v",
					name, s.Asking.Ignored, c.ignoresRequests(s), c.canAsk(s), testNow.Mono.Until(c.mayActUntil(s)))
			}
		}
	}
}

// A leader that drains for another reason answers too, and hands over what it has promised.
func TestARequestInADrain(t *testing.T) {
	c := testConfig()
	c.Patience = time.Second
	for name, x := range map[string]struct {
		lock   string
		change func(*State)
		gives  bool
		cool   time.Duration
		op     Op
		why    Reason
	}{
		"asked":                       {"mine, asked", func(s *State) { s.Since.Request = seconds(-1) }, false, 0, Renew, Refusing},
		"asked just now":              {"mine, asked", func(*State) {}, false, 0, NoOp, Holding},
		"asked with rank":             {"mine, asked", func(s *State) { s.Snap.Notes.Request.Key = "best"; s.Default.Revision = "best" }, false, 0, Renew, Accepting},
		"accepted":                    {"mine, accepted", func(*State) {}, true, 0, NoOp, Holding},
		"accepted, unfit":             {"mine, accepted", func(s *State) { s.Unfit = true }, true, 2 * time.Second, NoOp, Holding},
		"accepted before":             {"mine, accepted", func(s *State) { s.Drain.Kind, s.Drain.CoolDown, s.Unfit = DrainToHandOver, 9*time.Second, true }, true, 9 * time.Second, NoOp, Holding},
		"accepted, and lost":          {"mine, accepted", func(s *State) { s.Drain.Lost = RecordLost }, false, 0, NoOp, Stopped},
		"accepted by an earlier term": {"mine, accepted", func(s *State) { s.Snap.Notes.Request.Transitions = 2 }, false, 0, NoOp, Holding},
	} {
		s := ours(seenAt(0, lock(x.lock)), Draining)
		s.Alive, s.Why = true, Stopped
		x.change(&s)
		s = c.advance(s, testNow)
		a := c.decide(s, testNow)
		if s.Phase != Draining || s.Drain.Kind.HandsOver() != x.gives || s.Drain.CoolDown != x.cool || a.Op != x.op || a.Why != x.why {
			t.Errorf("%s: %s, gives %v, stays away for %v; %s because %s", name, s.Phase, s.Drain.Kind.HandsOver(), s.Drain.CoolDown, a.Op, a.Why)
		}
	}
	// That it steps down is not forgotten.
	for kind, want := range map[DrainKind]DrainKind{0: DrainToHandOver, DrainToStepDown: DrainToStepDown | DrainToHandOver, DrainToStepDown | DrainToHandOver: DrainToStepDown | DrainToHandOver} {
		s := ours(seenAt(0, lock("mine, accepted")), Draining)
		s.Alive, s.Drain.Kind = true, kind
		if got := c.advance(s, testNow).Drain.Kind; got != want {
			t.Errorf("a drain of kind %d that accepts: %d, want %d", kind, got, want)
		}
	}
	// One that settles judges nobody: it may not act itself.
	s := ours(seenAt(0, lock("mine, asked")), Settling)
	s.Since.Request, s.Earlier.SettleAt, s.Marked = seconds(-9), seconds(9), false
	if a := c.decide(s, testNow); a.Op != NoOp || a.Wake != seconds(2) {
		t.Errorf("one that settles: %s because %s, wakes in %v", a.Op, a.Why, testNow.Mono.Until(a.Wake))
	}
}
