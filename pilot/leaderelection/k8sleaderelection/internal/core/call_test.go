package core

import "testing"

// A slow answer is not a dead connection: the call lives as long as its answer is of use.
func TestUsefulUntil(t *testing.T) {
	c := testConfig()
	mine := seenAt(0, lock("mine"))
	lost := ours(mine, Draining)
	lost.Drain.Lost = ValidityLost
	unanswered := ours(mine, Leading)
	unanswered.Own.SentAt = moment(1e9)
	for name, x := range map[string]struct {
		s    State
		op   Op
		want float64 // seconds after testNow, when the validity has 8 s left
	}{
		"acquisition":                          {seenAt(0, lock("free")), Acquire, 12},
		"read of a follower":                   {seenAt(0, lock("equal")), Read, 12},
		"renewal of a leader":                  {ours(mine, Leading), Renew, 10},
		"read of a leader":                     {ours(mine, Leading), Read, 6},
		"read of a leader, renewal unanswered": {unanswered, Read, 10},
		"renewal while draining":               {ours(mine, Draining), Renew, 10},
		"renewal after the validity":           {lost, Renew, 12},
		"renewal of a settling holder":         {ours(mine, Settling), Renew, 12},
		"release":                              {ours(mine, Releasing), Release, 10},
		"read in the time for a release":       {ours(mine, Releasing), Read, 10},
	} {
		if got := c.usefulUntil(&x.s, x.op, moment(2e9)); got != seconds(x.want) {
			t.Errorf("%s: %v", name, testNow.Mono.Until(got))
		}
	}
}

// A call in flight ends early if a more important one waits for it.
func TestDecideFlight(t *testing.T) {
	c := testConfig()
	learned := func(s State, snap Snapshot) State { return c.observe(&s, later(0.5, snap)) } // by a watch event during the call
	stopped := func(s State) State { s.Stopping = true; return s }
	follower := seenAt(0, lock("equal"))
	mine := ours(seenAt(3, lock("mine")), Leading)
	overdue := stopped(ours(seenAt(3, lock("mine")), Draining))
	overdue.Drain.Overdue = true
	acquiring := seenAt(0, lock("free"))
	acquiring.Own = acquiring.Own.sent(lock("mine").Record, ClockReading{})
	for name, x := range map[string]struct {
		s    State
		want float64
	}{
		"read":                                {calling(follower, Read), 9},
		"read, another holder seen":           {learned(calling(follower, Read), lock("lower, held", newer)), 9},
		"read, nominated":                     {learned(calling(seenAt(0, lock("equal")), Read), lock("nominated me", newer, nominated("a", 4))), 1},
		"read, release seen":                  {learned(calling(follower, Read), lock("free", newer)), 1},
		"read, gap in the watch":              {c.watching(learned(calling(follower, Read), lock("equal", newer, released)), Input{Kind: Watching, Gap: true}), 9},
		"acquisition, lock lost and released": {learned(calling(seenAt(0, lock("free")), Acquire), lock("free", newer)), 1},
		"acquisition, stored":                 {learned(calling(acquiring, Acquire), lock("mine", newer)), 9},
		"renewal":                             {calling(mine, Renew), 9},
		"renewal, label changed, due":         {learned(calling(mine, Renew), lock("mine", newer)), 1},
		"read, stopped":                       {stopped(calling(follower, Read)), 1},
		"acquisition, stopped":                {stopped(calling(follower, Acquire)), 5},
		"renewal, stopped":                    {stopped(calling(ours(seenAt(3, lock("mine")), Draining), Renew)), 9},
		"renewal, stopped while settling":     {stopped(calling(ours(seenAt(3, lock("mine")), Settling), Renew)), 1},
		"renewal, drain stuck":                {calling(overdue, Renew), 1},
		"renewal, then drained":               {calling(ours(seenAt(3, lock("mine")), Releasing), Renew), 5},
		"renewal, seen stored, then drained":  {learned(calling(ours(seenAt(3, lock("mine")), Releasing), Renew), lock("mine", newer)), 1},
		"release":                             {stopped(calling(ours(seenAt(3, lock("mine")), Releasing), Release)), 9},
		"read before the release":             {stopped(calling(ours(seenAt(3, lock("mine")), Releasing), Read)), 9},
		"renewal of an ended term":            {calling(follower, Renew), 5},
	} {
		x.s.Flight.Until = seconds(9)
		want := seconds(x.want) // 1: half a RetryPeriod, 5: half of RenewDeadline
		a := c.decide(&x.s, moment(5e8))
		if a.Op != NoOp || a.Until != want || a.Wake > want {
			t.Errorf("%s: until %v, wake in %v", name, testNow.Mono.Until(a.Until), testNow.Mono.Until(a.Wake))
		}
	}
}
