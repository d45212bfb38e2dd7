package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
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
		"in an older state":      {left, lock("peer, marker left", older, to("istiod", 4), func(s *Snapshot) { s.Record.Lease = time.Minute }), 10 + 15},
		"own name, other writer": {lock("mine, unmarked"), lock("mine, unmarked", newer, marked("b", 2)), 10 + 15},
		"deleted lock":           {lock("absent"), lock("equal, unmarked", deleted, newer, marked("c", 2)), 0},
	} {
		s := c.observe(new(follower(c, x.before, "stable")), later(10, x.next))
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Former != want {
			t.Errorf("%s: waits until %v, want %v", name, testNow.Mono.Until(s.Earlier.Former), testNow.Mono.Until(want))
		}
	}
	// A marker next to an own record was recorded when the record was sent. An equal stamp of a peer does not
	// make its record an own one.
	s := follower(c, lock("free"), "stable")
	s.Own = wroteLast(s.Own, lock("mine").Record)
	if got := c.observe(&s, later(1, lock("mine, other's marker", newer))); got.Earlier.Former != 0 {
		t.Errorf("own write: waits until %v", testNow.Mono.Until(got.Earlier.Former))
	}
	if got := c.observe(&s, later(1, lock("peer, marker left", newer))); got.Earlier.Former != seconds(16) {
		t.Errorf("write of a peer with an own stamp: waits until %v", testNow.Mono.Until(got.Earlier.Former))
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
		s := c.observe(new(follower(c, x.before, "stable")), later(10, x.next))
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
	if s := c.observe(new(follower(c, nominee, "stable")), later(10, gone)); s.Earlier.Until != seconds(ranOn+7) {
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
		"leader, again":             {lock("mine"), Leading, func(s *State) { s.Displaced.Times = 3; *s = s.enter(Leading, Settled) }, theirs(), 2, 1, true},
		"seventh time":              {lock("mine"), Settling, func(s *State) { s.Displaced.Times = 5 }, theirs(), 22 * 16, 5, true},
		"following":                 {lock("mine"), Following, nil, theirs(), 2, 1, false},
		"by an equal before":        {lock("mine"), Leading, func(s *State) { s.Displaced.ByEqual = true }, theirs(lower), 2, 1, true},
		"record of another process": {lock("mine"), Leading, func(s *State) { s.Own.Writes, s.Own.Acked = [4]Write{}, Write{} }, theirs(), 0, 0, false},
		"record of another holder":  {lock("lower"), Leading, nil, theirs(to("c", 4), marked("c", 4)), 0, 0, false},
		"deleted":                   {lock("mine", deleted), Settling, nil, theirs(), 0, 0, false},
		"released":                  {lock("mine"), Leading, nil, theirs(released, func(s *Snapshot) { s.Annotations = Annotations{} }), 0, 0, false},
	} {
		s := seenAt(0, x.lock)
		s.Phase, s.Own = x.phase, wroteLast(s.Own, lock("mine").Record)
		if x.change != nil {
			x.change(&s)
		}
		s = c.observe(&s, later(0, x.next))
		want := Instant(0)
		if x.wait > 0 {
			want = seconds(x.wait)
		}
		if s.Displaced.NotBefore != want || s.Displaced.Times != x.times || s.Displaced.ByEqual != x.byEqual {
			t.Errorf("%s: delayed for %v, %d times, by an equal %v", name, testNow.Mono.Until(s.Displaced.NotBefore), s.Displaced.Times, s.Displaced.ByEqual)
		}
	}
}

// A term ended well if a release or handover of that term shows it.
func TestEndedWell(t *testing.T) {
	acting := lock("equal")
	settling := lock("equal", marked("c", 2))
	lease := func(change func(*Snapshot)) Snapshot {
		return lock("equal", change, func(s *Snapshot) { s.Record.Lease = testConfig().settlingLease() })
	}
	release := func(changes ...func(*Snapshot)) Snapshot {
		s := lock("equal", newer, released)
		s.Annotations = Annotations{}
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	for name, c := range map[string]struct {
		a, b Snapshot
		want bool
	}{
		"own marker left":      {acting, release(marked("b", 3)), false},
		"a peer releases":      {settling, release(marked("c", 2)), true},
		"emptied by hand":      {lease(marked("c", 2)), release(marked("c", 2)), false},
		"settled, released":    {lease(marked("c", 2)), release(), true},
		"another marker added": {settling, release(marked("d", 1)), false},
		"deleted":              {acting, release(deleted), false},
		"an older state":       {acting, release(older), false},
		"the same state":       {acting, release(func(s *Snapshot) { s.Version = acting.Version }), true},
		"record removed":       {acting, release(func(s *Snapshot) { s.Content = record.Missing }), false},
	} {
		if got := testConfig().endedWell(c.a, c.b); got != c.want {
			t.Errorf("%s: ended well: %v", name, got)
		}
	}
}

// The lock was seen at testNow. PeerGrace is 5 s.
func TestMayActUntil(t *testing.T) {
	c := testConfig()
	wrote := func(s *State) { s.Own = wroteLast(s.Own, s.Snap.Record) }
	twin := func(s *State) { wrote(s); s.Own.Duplicate = true }
	long := func(s *Snapshot) { s.Record.Lease = 40 * time.Second }
	for name, x := range map[string]struct {
		lock   Snapshot
		change func(*State)
		until  float64
	}{
		"longer lease":                 {lock("equal", long), nil, 40},
		"deleted":                      {lock("equal", deleted), nil, 0},
		"record removed":               {lock("equal", func(s *Snapshot) { s.Content = record.Missing }), nil, 0},
		"own record":                   {lock("mine, unmarked"), wrote, 0},
		"previous process, acting":     {lock("mine"), nil, 0},
		"previous process, not acting": {lock("mine, unmarked"), nil, 20}, // it may have preempted another elector
		"unreadable":                   {lock("equal", func(s *Snapshot) { s.Content = record.Unreadable }), nil, 20},
		"duplicate":                    {lock("mine"), twin, 15},
	} {
		s := seenAt(0, x.lock)
		if x.change != nil {
			x.change(&s)
		}
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if got := c.mayActUntil(&s); got != want {
			t.Errorf("%s: until %v, want %v", name, testNow.Mono.Until(got), testNow.Mono.Until(want))
		}
		if s.Earlier.Until = seconds(17); c.settledAt(&s) != max(want, seconds(17)) {
			t.Errorf("%s: settled in %v", name, testNow.Mono.Until(c.settledAt(&s)))
		}
	}
	// As with Istio's elector, a candidate that preempts a holder acts immediately. Otherwise it settles.
	c.Immediate = true
	for name, want := range map[string]Instant{"lower": 0, "free": seconds(17), "peer, marker left": seconds(20)} {
		s := seenAt(0, lock(name))
		s.Earlier.Until = seconds(17)
		if got := c.settledAt(&s); got != want {
			t.Errorf("immediate, %s: settled in %v", name, testNow.Mono.Until(got))
		}
	}
}

func TestFollower_Waits(t *testing.T) {
	const free, lower, mine = "free", "lower, unmarked", "mine"
	for name, x := range map[string]struct {
		lock   string
		change func(*Config, *State)
		want   decided
	}{
		// A back-off ends exactly at its time.
		"back-off as long as the lease": {"equal", func(_ *Config, s *State) { s.BackOff.Until = seconds(15) }, decided{NoOp, HeldByOther, 15}},
		// Without a default revision, a ranked candidate waits, unless it was nominated.
		"default":                        {free, unsynced, decided{NoOp, Unsynced, 3}},
		"default, within the lease":      {"equal", unsynced, decided{NoOp, HeldByOther, 15}},
		"default, longer than the lease": {"equal", func(c *Config, s *State) { unsynced(c, s); s.SyncBy = seconds(16) }, decided{NoOp, Unsynced, 16}},
		"default, nominated itself":      {"transferred to me", unsynced, decided{Acquire, Reclaimed, 0}},
		"default, unranked":              {free, func(c *Config, s *State) { unsynced(c, s); c.Ranked = false }, decided{Acquire, Free, 0}},
		// A paused write does not cause an earlier wake-up.
		// Rank does not count during a hold or after being displaced. The later end counts.
		"hold":                        {"lower, unmarked, held", nil, decided{NoOp, HeldByOther, 10}},
		"hold ends now":               {"lower, unmarked, held", func(_ *Config, s *State) { s.Since.Hold = seconds(-10) }, decided{Acquire, Preempted, 0}},
		"hold ends now, no rank":      {"lower, unmarked, held", func(c *Config, s *State) { s.Since.Hold, c.Key = seconds(-10), "other" }, decided{NoOp, HeldByOther, 15.025}},
		"displaced":                   {lower, func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 4}},
		"hold, longer than displaced": {"lower, unmarked, held", func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 10}},
		"displaced, lease expired":    {lower, func(_ *Config, s *State) { s.Since.Record, s.Displaced.NotBefore = seconds(-15), testNow.Mono }, decided{Acquire, Expired, 0}},
	} {
		c, s := testConfig(), seenAt(0, lock(x.lock))
		if s.Count = 3; x.change != nil {
			x.change(&c, &s)
		}
		x.want.check(t, name, c.decide(&s, testNow))
	}
}

// unsynced waits for the default for 3 s more.
func unsynced(_ *Config, s *State) { s.Default, s.SyncBy = DefaultRevision{}, seconds(3) }

// A nominee that did not send a request, or does not want the lock now, releases it, unless an earlier holder may act.
func TestNominee_Unrequested(t *testing.T) {
	for name, x := range map[string]struct {
		lock   string
		change func(*State)
		want   decided
	}{
		"earlier holder has ended":         {"nominated me", func(s *State) { s.Earlier.Until = testNow.Mono }, decided{Release, Unrequested, 0}},
		"duplicate":                        {"nominated me", func(s *State) { s.Own.Duplicate = true }, decided{NoOp, HeldByOther, 2}},
		"back-off, earlier holder may act": {"nominated me", func(s *State) { s.Earlier.Until, s.BackOff.Until = seconds(1), seconds(5) }, decided{NoOp, BackingOff, 1}},
		"back-off, has led since":          {"transferred to me", func(s *State) { s.BackOff.Until, s.Snap.Record.Renewed = seconds(5), 77e6 }, decided{NoOp, BackingOff, 5}},
	} {
		s := seenAt(0, lock(x.lock))
		x.change(&s)
		x.want.check(t, name, testConfig().decide(&s, testNow))
	}
}
