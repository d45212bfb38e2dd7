package core

import (
	"testing"
	"time"
)

// A marker left by another term counts from when it was first seen like this.
func TestObserve_FormerMarker(t *testing.T) {
	c := testConfig()
	left := lock("peer, marker left", newer, to("istiod", 4))
	for name, x := range map[string]struct {
		before, next Snapshot
		until        float64
	}{
		"of the former holder":   {lock("equal"), lock("equal", newer, renewed, to("istiod", 4)), 10 + 15},
		"the same marker":        {left, lock("peer, marker left", newer, renewed, to("istiod", 4)), 15},
		"another marker":         {left, lock("peer, marker left", newer, renewed, to("istiod", 4), marked("c", 3)), 10 + 15},
		"in an older state":      {left, lock("peer, marker left", older, to("istiod", 4), func(s *Snapshot) { s.Record.Lease = time.Minute }), 10 + 60},
		"own name, other writer": {lock("mine, unmarked"), lock("mine, unmarked", newer, marked("b", 2)), 10 + 15},
		"deleted lock":           {lock("absent"), lock("equal, unmarked", deleted, newer, marked("c", 2)), 0},
	} {
		s := c.observe(follower(c, x.before, "stable"), later(10, x.next))
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v, want %v", name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
	}
	// A marker next to an own record was recorded when the record was sent. An equal stamp of a peer does not
	// make its record an own one.
	s := follower(c, lock("free"), "stable")
	s.Own.Stamps[0] = 7e6
	if got := c.observe(s, later(1, lock("mine, other's marker", newer))); got.Earlier.Until != 0 {
		t.Errorf("own write: waits until %v", testNow.Mono.Until(got.Earlier.Until))
	}
	if got := c.observe(s, later(1, lock("peer, marker left", newer))); got.Earlier.Until != seconds(16) {
		t.Errorf("write of a peer with an own stamp: waits until %v", testNow.Mono.Until(got.Earlier.Until))
	}
}

// The candidate waits for a holder that is gone from the record. Holder b was seen at testNow, the change 10 s later.
func TestObserve_EarlierHolder(t *testing.T) {
	c := testConfig()
	c.PeerGrace = 0
	acting, unmarked := lock("equal"), lock("equal, unmarked")
	taken := []func(*Snapshot){newer, to("c", 4), marked("c", 4)}
	gone := Snapshot{Version: 30}
	const well, ranOn = 0, 25 // it may have renewed until then
	nominee := lock("equal", nominated("b", 3))
	for name, x := range map[string]struct {
		before, next Snapshot
		until        float64
	}{
		"… in a recreated lock":                  {acting, lock("equal", append(taken, recreation)...), ranOn},
		"… in the same version":                  {acting, lock("equal", append(taken, func(s *Snapshot) { s.Version = 20 })...), ranOn},
		"… in an earlier term":                   {acting, lock("equal", newer, to("c", 2), marked("c", 2)), ranOn},
		"nominated, terms missed":                {acting, lock("equal", newer, nominated("b", 9)), 15},
		"acts in a recreated lock":               {acting, lock("equal", newer, recreation, to("b", 0), marked("b", 0)), well},
		"… but not in the one before":            {unmarked, lock("equal", newer, recreation, to("b", 0), marked("b", 0)), ranOn},
		"acts in a recreated lock, same version": {acting, lock("equal", recreation, to("b", 0), marked("b", 0)), ranOn},
		"own older state":                        {acting, lock("equal", older), ranOn},
		"preempted":                              {acting, lock("equal", newer, to("c", 4), marked("", 0)), 15},
		// The first own write of a nominee may have been missed.
		"nominated, deleted":   {nominee, gone, ranOn},
		"nominated, recreated": {nominee, lock("equal", newer, recreation, to("c", 0), marked("c", 0)), ranOn},
	} {
		s := c.observe(follower(c, x.before, "stable"), later(10, x.next))
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v, want %v", name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
		if s.Earlier.Away != (Away{}) {
			t.Errorf("%s: away is %+v", name, s.Earlier.Away)
		}
	}
	c.PeerGrace = 7 * time.Second
	if s := c.observe(follower(c, nominee, "stable"), later(10, gone)); s.Earlier.Until != seconds(ranOn+7) {
		t.Errorf("nominee that may be a peer: waits until %v", testNow.Mono.Until(s.Earlier.Until))
	}
}

// A displaced candidate does not preempt for a while, and does not preempt an equal key until the default changes.
func TestObserve_Displaced(t *testing.T) {
	c := testConfig() // RetryPeriod 2 s; lease, grace and RetryPeriod 22 s
	theirs := func(changes ...func(*Snapshot)) Snapshot {
		s := lock("equal", newer, to("b", 4), marked("b", 4))
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	lower := func(s *Snapshot) { s.Record.Key = "canary" }
	for name, x := range map[string]struct {
		lock    Snapshot
		phase   Phase
		change  func(*State)
		next    Snapshot
		wait    float64
		times   uint8
		byEqual bool
	}{
		"leader":                    {lock("mine"), Leading, nil, theirs(), 2, 1, true},
		"leader, by another rank":   {lock("mine"), Leading, nil, theirs(lower), 2, 1, false},
		"settling, again":           {lock("mine"), Settling, func(s *State) { s.Displaced.Times = 1 }, theirs(), 22, 2, true},
		"leader, again":             {lock("mine"), Leading, func(s *State) { s.Displaced.Times = 3 }, theirs(), 2, 1, true},
		"seventh time":              {lock("mine"), Settling, func(s *State) { s.Displaced.Times = 5 }, theirs(), 22 * 16, 5, true},
		"following":                 {lock("mine"), Following, nil, theirs(), 2, 1, false},
		"by an equal before":        {lock("mine"), Leading, func(s *State) { s.Displaced.ByEqual = true }, theirs(lower), 2, 1, true},
		"record of another process": {lock("mine"), Leading, func(s *State) { s.Own.Stamps, s.Own.Acked = [4]Stamp{}, 0 }, theirs(), 0, 0, false},
		"record of another holder":  {lock("lower"), Leading, nil, theirs(to("c", 4), marked("c", 4)), 0, 0, false},
		"deleted":                   {lock("mine", deleted), Settling, nil, theirs(), 0, 0, false},
		"released":                  {lock("mine"), Leading, nil, theirs(released, func(s *Snapshot) { s.Annotations = Annotations{} }), 0, 0, false},
	} {
		s := seenAt(0, x.lock)
		s.Phase, s.Own.Stamps[0] = x.phase, 7e6
		if x.change != nil {
			x.change(&s)
		}
		s = c.observe(s, later(0, x.next))
		want := Instant(0)
		if x.wait > 0 {
			want = seconds(x.wait)
		}
		if s.Displaced.NotBefore != want || s.Displaced.Times != x.times || s.Displaced.ByEqual != x.byEqual {
			t.Errorf("%s: delayed for %v, %d times, by an equal %v", name, testNow.Mono.Until(s.Displaced.NotBefore), s.Displaced.Times, s.Displaced.ByEqual)
		}
	}
}

// A record with the own name that this process did not write was written by another process of that name.
func TestObserve_Duplicate(t *testing.T) {
	c := testConfig()
	acting := []func(*Snapshot){newer, renewed}
	for name, x := range map[string]struct {
		before, next Snapshot
		twin, wrote  bool
		want         bool
	}{
		"acts in a restored state":       {lock("equal"), lock("mine", older, renewed), false, false, false},
		"acts in the same version":       {lock("equal"), lock("mine", renewed), false, false, true},
		"renews without a marker":        {lock("mine, unmarked"), lock("mine, unmarked", acting...), false, false, true},
		"in the second object of a pair": {lock("mine, unmarked"), lock("mine, unmarked", newer, func(s *Snapshot) { s.Sum++ }), false, false, false},
		"deleted":                        {lock("mine"), lock("mine", deleted, newer), true, false, false},
		"unreadable":                     {lock("mine"), lock("mine", unreadable, newer), true, false, false},
		"nominated again":                {lock("mine"), lock("mine", newer, nominated("a", 5)), false, false, false},
		"known duplicate, nominated":     {lock("mine"), lock("mine", newer, nominated("a", 5)), true, false, true},
		"written over a deleted record":  {lock("mine", deleted), lock("mine, unmarked", newer, renewed), false, false, false},
	} {
		s := seenAt(0, x.before)
		s.Own.Duplicate = x.twin
		if x.wrote {
			s.Own.Stamps[0] = x.next.Record.Renewed
		}
		if got := c.observe(s, later(1, x.next)).Own.Duplicate; got != x.want {
			t.Errorf("%s: duplicate %v", name, got)
		}
	}
}

// An event that is older than the known lock changes nothing. A newer one shows whether an acquire was stored.
func TestObserve_Age(t *testing.T) {
	s := follower(testConfig(), lock("equal"), "stable")
	s.Own.AcquireUnknown = true
	old := testConfig().absorb(s, Input{Kind: Seen, Now: testNow, Snap: lock("equal", older), Beats: true})
	if next := testConfig().absorb(s, later(0, lock("equal", newer))); old != s || next.Own.AcquireUnknown {
		t.Errorf("older: %+v\nnewer: %+v", old, next)
	}
}
