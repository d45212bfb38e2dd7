package core

import (
	"testing"
	"time"
)

// later is an input that shows snap n seconds after testNow.
func later(n float64, snap Snapshot) Input {
	return Input{Kind: Seen, Now: moment(time.Duration(n * float64(time.Second))), Snap: snap}
}

func renewed(s *Snapshot) { s.Sum++; s.Record.Renewed += 1e6 }

// From when on a holder's time is counted anew: with each change of its record, and when an
// older state was put back, even if that shows the same bytes.
func TestWhatRestartsALease(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		next Snapshot
		want float64
	}{
		"a label":          {lock("equal", newer), 0},
		"a renewal":        {lock("equal", newer, renewed), 5},
		"an older state":   {lock("equal", older), 5},
		"made anew, alike": {lock("equal", newer, anew), 5},
	} {
		s := c.observe(follower(c, lock("equal"), "stable"), later(5, x.next))
		if s.Since.Record != seconds(x.want) {
			t.Errorf("%s: counted from %v after the first sight", name, testNow.Mono.Until(s.Since.Record))
		}
	}
	// Of an unreadable record too, and a label does not prolong what is waited for.
	s := c.observe(follower(c, lock("unreadable"), "stable"), later(5, lock("unreadable", newer)))
	if s.Earlier.Until != 0 || s.Since.Record != testNow.Mono {
		t.Errorf("a label on an unreadable record: waits until %v", testNow.Mono.Until(s.Earlier.Until))
	}
	// A record of our name from before us, with its marker: a label does not make it another process's.
	if s := c.observe(follower(c, lock("mine"), "stable"), later(5, lock("mine", newer))); s.Own.Duplicate {
		t.Error("a label was taken for a write in our name")
	}
}

// A marker that was left behind is waited for from when it was first seen so: not from when
// its holder was, nor from when another marker stood there.
func TestSinceWhenAMarkerIsEvidence(t *testing.T) {
	c := testConfig()
	left := lock("peer, marker left", newer, to("istiod", 4))
	for name, x := range map[string]struct {
		before, next Snapshot
		until        float64
	}{
		"of who acted before":     {lock("equal"), lock("equal", newer, renewed, to("istiod", 4)), 10 + 15},
		"the same one":            {left, lock("peer, marker left", newer, renewed, to("istiod", 4)), 15},
		"another one":             {left, lock("peer, marker left", newer, renewed, to("istiod", 4), marked("c", 3)), 10 + 15},
		"in an older state":       {left, lock("peer, marker left", older, to("istiod", 4), func(s *Snapshot) { s.Record.Lease = time.Minute }), 10 + 60},
		"in our name, not by us":  {lock("mine, unmarked"), lock("mine, unmarked", newer, marked("b", 2)), 10 + 15},
		"one's own":               {lock("equal, unmarked"), lock("equal, unmarked", newer, marked("a", 2)), 0},
		"in a lock that is gone":  {lock("absent"), lock("equal, unmarked", deleted, newer, marked("c", 2)), 0},
		"by the peer of our past": {lock("equal, unmarked"), lock("equal, unmarked", newer, marked("c", 2)), 10 + 15},
	} {
		s := c.observe(follower(c, x.before, "stable"), later(10, x.next))
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v after the first sight, want %v", name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
	}
	// A marker beside a record of our own is of a holder that we displaced ourselves: that was noted
	// when we sent it. A stamp that coincides with one of ours does not make a record ours.
	s := follower(c, lock("free"), "stable")
	s.Own.Stamps[0] = 7e6
	if got := c.observe(s, later(1, lock("mine, other's marker", newer))); got.Earlier.Until != 0 {
		t.Errorf("our own write: waits until %v", testNow.Mono.Until(got.Earlier.Until))
	}
	if got := c.observe(s, later(1, lock("peer, marker left", newer))); got.Earlier.Until != seconds(16) {
		t.Errorf("a peer's, with our stamp: waits until %v", testNow.Mono.Until(got.Earlier.Until))
	}
}

// What else a sight changes.
func TestWhatASightChanges(t *testing.T) {
	c := testConfig()
	s := follower(c, lock("equal"), "stable")
	s.Own.Stamps[0], s.Beats, s.Own.AcquireUnknown, s.Known = 7e6, true, true, Behind
	got := c.observe(s, later(1, lock("equal", newer, to("b", 8))))
	if got.Beats || got.Own.AcquireUnknown || got.Known != Current || got.Own.Acked != 0 || got.Count != 8 || got.Learned != s.Learned+1 {
		t.Errorf("another's: %+v", got)
	}
	if got := c.observe(s, later(1, lock("mine", newer))); got.Own.Acked != 7e6 {
		t.Errorf("our own write was stored, and acknowledged is %d", got.Own.Acked)
	}
	for _, gone := range []func(*Snapshot){deleted, unreadable} {
		if got := c.observe(s, later(1, lock("mine", newer, gone, to("a", 9)))); got.Own.Acked != 0 || got.Count != 3 {
			t.Errorf("what cannot be read: %+v", got)
		}
	}
}

// For how long a holder is waited for that is gone from the record, and whether it is one
// that may come back to a lock made anew. b was seen at testNow, what follows 10 s later.
func TestWhoIsWaitedFor(t *testing.T) {
	c := testConfig()
	c.PeerGrace = 0
	acting, unmarked := lock("equal"), lock("equal, unmarked")
	taken := []func(*Snapshot){newer, to("c", 4), marked("c", 4)}
	gone := Snapshot{Version: 30}
	const well, ranOn = 0, 25 // it may have renewed until it was seen gone
	nominee := lock("equal", nominated("b", 3))
	for name, x := range map[string]struct {
		before, next Snapshot
		until        float64
		away         bool
	}{
		"taken by one who acts":                   {acting, lock("equal", taken...), well, false},
		"in a lock made anew":                     {acting, lock("equal", append(taken, anew)...), ranOn, false},
		"in an older state":                       {acting, lock("equal", append(taken, older)...), ranOn, false},
		"in the same version":                     {acting, lock("equal", append(taken, func(s *Snapshot) { s.Version = 20 })...), ranOn, false},
		"in the same term":                        {acting, lock("equal", newer, to("c", 3), marked("c", 3)), ranOn, false},
		"in an earlier term":                      {acting, lock("equal", newer, to("c", 2), marked("c", 2)), ranOn, false},
		"nominated after an older state":          {acting, lock("equal", newer, nominated("b", 9)), 15, false},
		"it acts in a lock made anew":             {acting, lock("equal", newer, anew, to("b", 0), marked("b", 0)), well, false},
		"it has not acted in the one before":      {unmarked, lock("equal", newer, anew, to("b", 0), marked("b", 0)), ranOn, false},
		"another acts in a lock made anew":        {acting, lock("equal", newer, anew, to("c", 0), marked("c", 0)), ranOn, false},
		"it does not act in the lock made anew":   {acting, lock("equal", newer, anew, to("b", 0), marked("", 0)), ranOn, false},
		"it acts in another lock, which is older": {acting, lock("equal", older, anew, to("b", 0), marked("b", 0)), ranOn, false},
		"it acts in another of the same version":  {acting, lock("equal", anew, to("b", 0), marked("b", 0)), ranOn, false},
		"an older state of its own":               {acting, lock("equal", older), ranOn, false},
		"the same version, renewed":               {acting, lock("equal", renewed), well, false},
		"deleted":                                 {acting, gone, ranOn, true},
		"deleted, it did not act":                 {unmarked, gone, ranOn, false},
		"emptied, its marker left":                {acting, lock("equal", newer, released), ranOn, false},
		// A nominee's own first write may have been there, unseen, if nobody has taken the lock from it.
		"nominated, and deleted":             {nominee, gone, ranOn, false},
		"nominated, and emptied":             {nominee, lock("equal", newer, func(s *Snapshot) { s.Content = Missing }), ranOn, false},
		"nominated, it cannot be read":       {nominee, lock("equal", newer, unreadable), ranOn, false},
		"nominated, in a lock made anew":     {nominee, lock("equal", newer, anew, to("c", 0), marked("c", 0)), ranOn, false},
		"nominated, it has released":         {nominee, lock("equal", newer, released, marked("", 0)), well, false},
		"nominated, taken by one who acts":   {nominee, lock("equal", taken...), well, false},
		"nominated, taken by one who waits":  {nominee, lock("equal", newer, to("c", 4), marked("", 0)), well, false},
		"we were nominated, and are deleted": {lock("mine", nominated("a", 3)), gone, well, false},
	} {
		s := c.observe(follower(c, x.before, "stable"), later(10, x.next))
		// What a marker left behind asks for is another rule's, and not asked here.
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v after the first sight, want %v", name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
		if away := (Away{Holder: "b", Until: want}); (s.Earlier.Away == away) != x.away || !x.away && s.Earlier.Away != (Away{}) {
			t.Errorf("%s: away is %+v", name, s.Earlier.Away)
		}
	}
	c.PeerGrace = 7 * time.Second
	if s := c.observe(follower(c, nominee, "stable"), later(10, gone)); s.Earlier.Until != seconds(ranOn+7) {
		t.Errorf("a nominee that may be a peer: waits until %v after the first sight", testNow.Mono.Until(s.Earlier.Until))
	}
}

// The leader of a lock that was deleted comes back to one made anew: it is waited for no
// longer, but whoever was waited for before it still is.
func TestALeaderComesBack(t *testing.T) {
	c := testConfig()
	c.PeerGrace = 0
	back := lock("equal", anew, to("b", 0), marked("b", 0), func(s *Snapshot) { s.Version = 40 })
	with := func(changes ...func(*Snapshot)) Snapshot {
		s := back
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	s := follower(c, lock("equal"), "stable")
	s.Earlier.Until = seconds(12)
	s = c.observe(s, later(10, Snapshot{Version: 30}))
	waited := s
	waited.Earlier.Until = seconds(50)
	nobody := s
	nobody.Earlier.Away = Away{}
	there := s
	there.Snap = lock("free", newer)
	for name, x := range map[string]struct {
		s     State
		next  Snapshot
		until float64
	}{
		"it acts":                      {s, back, 12},
		"it does not act yet":          {s, with(marked("", 0)), 25},
		"another acts":                 {s, with(to("c", 0), marked("c", 0)), 25},
		"somebody else is waited for":  {waited, back, 50},
		"it was nobody":                {nobody, back, 25},
		"the lock was there meanwhile": {there, back, 25},
	} {
		got := c.observe(x.s, later(12, x.next))
		if got.Earlier.Until != seconds(x.until) {
			t.Errorf("%s: waits until %v after the first sight, want %vs", name, testNow.Mono.Until(got.Earlier.Until), x.until)
		}
	}
}

// One that was displaced by another holds back from preempting it, and from who judges its
// rank by a comparison of its own until the default changes.
func TestWhoHoldsBackAfterBeingDisplaced(t *testing.T) {
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
		wait    float64 // 0: none
		times   uint8
		byEqual bool
	}{
		"a leader":                      {lock("mine"), Leading, nil, theirs(), 2, 1, true},
		"a leader, by another rank":     {lock("mine"), Leading, nil, theirs(lower), 2, 1, false},
		"one that settles, again":       {lock("mine"), Settling, func(s *State) { s.Displaced.Times = 1 }, theirs(), 22, 2, true},
		"a leader, again":               {lock("mine"), Leading, func(s *State) { s.Displaced.Times = 3 }, theirs(), 2, 1, true},
		"for the seventh time":          {lock("mine"), Settling, func(s *State) { s.Displaced.Times = 5 }, theirs(), 22 * 16, 5, true},
		"one that follows":              {lock("mine"), Following, nil, theirs(), 2, 1, false},
		"by an equal before":            {lock("mine"), Leading, func(s *State) { s.Displaced.ByEqual = true }, theirs(lower), 2, 1, true},
		"a record of another process":   {lock("mine"), Leading, func(s *State) { s.Own.Stamps, s.Own.Acked = [4]Stamp{}, 0 }, theirs(), 0, 0, false},
		"another's record":              {lock("lower"), Leading, nil, theirs(to("c", 4), marked("c", 4)), 0, 0, false},
		"what is left of a deleted one": {lock("mine", deleted), Settling, nil, theirs(), 0, 0, false},
		"by a release":                  {lock("mine"), Leading, nil, theirs(released, func(s *Snapshot) { s.Notes = Notes{} }), 0, 0, false},
		"by somebody who empties it":    {lock("mine"), Leading, nil, theirs(released), 0, 0, false},
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
			t.Errorf("%s: holds back for %v, %d times, by an equal %v", name, testNow.Mono.Until(s.Displaced.NotBefore), s.Displaced.Times, s.Displaced.ByEqual)
		}
	}
}

// Another process of our name is known by what it writes while we do not.
func TestWhoIsATwin(t *testing.T) {
	c := testConfig()
	acting := []func(*Snapshot){newer, renewed}
	for name, x := range map[string]struct {
		before, next Snapshot
		twin, wrote  bool
		want         bool
	}{
		"it renews":                        {lock("mine"), lock("mine", acting...), false, false, true},
		"we renew":                         {lock("mine"), lock("mine", acting...), false, true, false},
		"we renew after it":                {lock("mine"), lock("mine", acting...), true, true, false},
		"it acts where another was":        {lock("equal"), lock("mine", newer, to("a", 4), marked("a", 4)), false, false, true},
		"it acts in what was put back":     {lock("equal"), lock("mine", older, renewed), false, false, false},
		"it acts in the same version":      {lock("equal"), lock("mine", renewed), false, false, true},
		"written in, it does not act yet":  {lock("equal"), lock("mine, unmarked", newer, to("a", 4)), false, false, false},
		"it was one, and is still there":   {lock("equal"), lock("mine, unmarked", newer, to("a", 4)), true, false, true},
		"it renews without a marker":       {lock("mine, unmarked"), lock("mine, unmarked", acting...), false, false, true},
		"in the other of two objects too":  {lock("mine, unmarked"), lock("mine, unmarked", newer, func(s *Snapshot) { s.Sum++ }), false, false, false},
		"in a lock made anew, unmarked":    {lock("mine, unmarked"), lock("mine, unmarked", newer, anew, to("a", 0)), false, false, false},
		"it is gone":                       {lock("mine"), lock("equal", newer, to("b", 4)), true, false, false},
		"it is deleted":                    {lock("mine"), lock("mine", deleted, newer), true, false, false},
		"what it wrote can't be read":      {lock("mine"), lock("mine", unreadable, newer), true, false, false},
		"written in anew, from our term":   {lock("mine"), lock("mine", newer, nominated("a", 5)), false, false, false},
		"it was one, and is written in":    {lock("mine"), lock("mine", newer, nominated("a", 5)), true, false, true},
		"it was written over what is gone": {lock("mine", deleted), lock("mine, unmarked", newer, renewed), false, false, false},
	} {
		s := seenAt(0, x.before)
		s.Own.Duplicate = x.twin
		if x.wrote {
			s.Own.Stamps[0] = x.next.Record.Renewed
		}
		if got := c.observe(s, later(1, x.next)).Own.Duplicate; got != x.want {
			t.Errorf("%s: a twin: %v", name, got)
		}
	}
}

// Who is waited for for a shorter time than a leader that is away is not forgotten when that
// one comes back.
func TestALeaderThatComesBackHidesNobody(t *testing.T) {
	c := testConfig() // lease 15 s, grace 5 s
	long := func(s *Snapshot) { s.Record.Lease = time.Minute }
	gone := func(version uint64) Snapshot { return Snapshot{Version: version} }
	there := func(version uint64, uid string, snap Snapshot) Snapshot {
		snap.Version, snap.UID.First = version, uid
		return snap
	}
	back := there(50, "w", lock("equal", long, to("b", 0), marked("b", 0)))
	for name, x := range map[string]struct {
		between Snapshot
		until   float64
	}{
		"a peer":                    {lock("equal, unmarked", to("istiod", 0)), 11 + 20 + 1},
		"a marker that was left":    {lock("free, marker left", marked("c", 2)), 11 + 15},
		"nobody":                    {lock("free"), 0},
		"another leader, also away": {lock("equal", to("c", 0), marked("c", 0)), 11 + 15 + 1},
	} {
		s := follower(c, lock("equal", long), "stable")
		s = c.observe(s, later(10, gone(30)))
		s = c.observe(s, later(11, there(31, "v", x.between)))
		s = c.observe(s, later(12, gone(40)))
		if s.Earlier.Until != seconds(70) {
			t.Fatalf("%s: the leader that is away is waited for until %v", name, testNow.Mono.Until(s.Earlier.Until))
		}
		s = c.observe(s, later(13, back))
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v after the first sight, want %v", name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
	}
}
