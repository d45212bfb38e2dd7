package core

import (
	"testing"
	"time"
)

// lock is one of testSnapshots, changed.
func lock(name string, changes ...func(*Snapshot)) Snapshot {
	s := testSnapshots()[name]
	for _, change := range changes {
		change(&s)
	}
	return s
}

func deleted(s *Snapshot)    { s.Exists = false }
func unreadable(s *Snapshot) { s.Content = Unreadable }
func released(s *Snapshot)   { s.Record.Holder, s.Sum = "", s.Sum+1 }
func anew(s *Snapshot)       { s.UID.First = "v" }
func older(s *Snapshot)      { s.Version = 9 }
func newer(s *Snapshot)      { s.Version = 30 }

// to is a change of the record's holder and term.
func to(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Record.Holder, s.Record.Transitions = holder, transitions
		s.Sum++
	}
}

func marked(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) { s.Notes.Marker = Marker{Identity: holder, Transitions: transitions} }
}

func nominated(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) {
		to(holder, transitions)(s)
		s.Notes = Notes{Nominated: Nomination{Identity: holder, Transitions: transitions}}
		s.Record.Acquired = s.Record.Renewed
	}
}

// What stands in a lock counts only if all of it fits: what is left of a deleted lock, or
// beside a record that cannot be read, or of another term, says nothing.
func TestWhatARecordSays(t *testing.T) {
	for name, says := range map[string]struct {
		of   func(Snapshot) bool
		good Snapshot
		bad  map[string]func(*Snapshot)
	}{
		"held": {Snapshot.Held, lock("equal"), map[string]func(*Snapshot){
			"deleted": deleted, "unreadable": unreadable, "released": released,
		}},
		"acting": {Snapshot.Acting, lock("equal"), map[string]func(*Snapshot){
			"deleted": deleted, "unreadable": unreadable, "no marker": marked("", 0),
			"another's marker": marked("c", 3), "another term's marker": marked("b", 2),
		}},
		"nominated": {Snapshot.Nominated, lock("nominated"), map[string]func(*Snapshot){
			"deleted": deleted, "unreadable": unreadable, "another": to("c", 3), "another term": to("b", 4),
			"it has renewed": func(s *Snapshot) { s.Record.Renewed++ },
		}},
		"evidence": {func(s Snapshot) bool { return s.hasFormer("a") }, lock("peer, marker left"), map[string]func(*Snapshot){
			"deleted": deleted, "no marker": marked("", 0), "one's own": marked("a", 2), "of who acts": marked("istiod", 3),
		}},
		"addressed": {Snapshot.Addressed, lock("mine, asked"), map[string]func(*Snapshot){
			"deleted": deleted, "unreadable": unreadable, "to another": to("c", 3), "to another term": to("a", 4),
			"by the holder itself": func(s *Snapshot) { s.Notes.Request.Identity = "a" },
			"by nobody":            func(s *Snapshot) { s.Notes.Request.Identity = "" },
		}},
		"addressed, by an operator": {Snapshot.Addressed, lock("mine, to step down"), map[string]func(*Snapshot){
			"of the term before": to("a", 4),
		}},
		"a hold's end": {func(s Snapshot) bool { return State{Snap: s, Since: Since{Hold: testNow.Mono}}.holdEnds() != 0 }, lock("lower, held"), map[string]func(*Snapshot){
			"deleted": deleted, "unreadable": unreadable, "of another": to("c", 3), "of another term": to("b", 4),
		}},
		"a transfer": {func(s Snapshot) bool { return testConfig().transferred(State{Snap: s}) }, lock("transferred to me"), map[string]func(*Snapshot){
			"of another term": to("a", 4), "a pause": func(s *Snapshot) { s.Notes.Hold.Reason = HoldForPause },
			"to another": func(s *Snapshot) { s.Record.Holder, s.Notes.Hold.Holder = "c", "c" },
		}},
	} {
		if !says.of(says.good) {
			t.Errorf("%s: not said", name)
		}
		for what, spoil := range says.bad {
			s := says.good
			if spoil(&s); says.of(s) {
				t.Errorf("%s: said although %s", name, what)
			}
		}
	}
	if (Hold{}).names(Record{}) || (Marker{}).names(Record{}) {
		t.Error("nothing names nobody")
	}
	m := Marker{Identity: "b", Transitions: 3}
	for r, want := range map[Record]bool{
		{Holder: "b", Transitions: 3}: true, {Holder: "c", Transitions: 3}: false, {Holder: "b", Transitions: 4}: false,
	} {
		if m.names(r) != want || (Hold{Holder: "b", Transitions: 3}).names(r) != want {
			t.Errorf("b's third term and %+v: not %v", r, want)
		}
	}
}

// A record is the same only if all of it is, and a holder is the same in one lock only.
func TestWhatIsTheSame(t *testing.T) {
	was := lock("equal")
	for name, c := range map[string]struct {
		change         func(*Snapshot)
		record, holder bool
	}{
		"a label":        {newer, true, true},
		"a renewal":      {func(s *Snapshot) { s.Sum++ }, false, true},
		"deleted":        {deleted, false, false},
		"made anew":      {anew, false, false},
		"unreadable":     {unreadable, false, false},
		"another holder": {to("c", 3), false, false},
	} {
		is := was
		c.change(&is)
		if sameRecord(was, is) != c.record || sameRecord(is, was) != c.record {
			t.Errorf("%s: the same record: not %v", name, c.record)
		}
		if sameHolder(was, is) != c.holder || sameHolder(is, was) != c.holder {
			t.Errorf("%s: the same holder: not %v", name, c.holder)
		}
	}
	if other := lock("equal", anew); continues(was, other) || !continues(was, was) {
		t.Error("a lock made anew continues the one before")
	}
}

// A term has ended well if a release or a handover says so, of that term, by whoever could
// know: the marker that its holder had found and left says nothing of its own end.
func TestWhatEndsATermWell(t *testing.T) {
	acting := lock("equal")
	settling := lock("equal", marked("c", 2))
	unmarked := lock("equal, unmarked")
	release := func(changes ...func(*Snapshot)) Snapshot {
		s := lock("equal", newer, released)
		s.Notes = Notes{}
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	for name, c := range map[string]struct {
		a, b Snapshot
		want bool
	}{
		"a release":                              {acting, release(), true},
		"its own marker was left":                {acting, release(marked("b", 3)), false},
		"a release by one who settles":           {settling, release(marked("c", 2)), true},
		"another marker came up":                 {settling, release(marked("d", 1)), false},
		"a marker came up":                       {unmarked, release(marked("d", 1)), false},
		"deleted":                                {acting, release(deleted), false},
		"made anew":                              {acting, release(anew), false},
		"an older state":                         {acting, release(older), false},
		"the same state":                         {acting, release(func(s *Snapshot) { s.Version = acting.Version }), true},
		"another term's":                         {acting, release(to("", 4)), false},
		"a handover":                             {acting, lock("equal", newer, nominated("c", 4)), true},
		"a handover to the holder":               {acting, lock("equal", newer, nominated("b", 4)), true},
		"a handover of another term":             {acting, lock("equal", newer, nominated("c", 5)), false},
		"taken":                                  {acting, lock("equal", newer, to("c", 4), marked("", 0)), false},
		"cannot be read":                         {acting, release(unreadable), false},
		"the record was removed":                 {acting, release(func(s *Snapshot) { s.Content = Missing }), false},
		"of the first term, cannot be read":      {lock("equal", to("b", 0), marked("b", 0)), release(unreadable, to("", 0)), false},
		"of a handover that an older state took": {acting, lock("equal", older, nominated("c", 4)), false},
	} {
		if got := endedWell(c.a, c.b); got != c.want {
			t.Errorf("%s: ended well: %v", name, got)
		}
	}
}

// A stamp is the wall clock in whole seconds, or the second after the recorded one when the
// clock has not come that far; one that is more than a day ahead is no clock's.
func TestWhichStampIsWritten(t *testing.T) {
	const wall = 1_780_000_000
	now := Stamp(wall) * stampSecond
	for recorded, want := range map[Stamp]Stamp{
		0: now, now - stampSecond: now, now: now + stampSecond, now + 1: now + stampSecond,
		now + stampSecond - 1: now + stampSecond, now + 5*stampSecond: now + 6*stampSecond,
		now + maxStampLead: now + maxStampLead + stampSecond, now + maxStampLead + 1: now,
	} {
		if got := nextStamp(recorded, wall*1e9+999); got != want {
			t.Errorf("over %d: %d, want %d", recorded-now, got-now, want-now)
		}
	}
	s := State{Own: Own{Stamps: [4]Stamp{now + 3*stampSecond}}, Snap: Snapshot{Record: Record{Renewed: now}}}
	if got := s.nextStamp(wall * 1e9); got != now+4*stampSecond {
		t.Errorf("a stamp that we have used is used again: %d", got-now)
	}
	s.Snap.Record.Renewed = now + 7*stampSecond
	if got := s.nextStamp(wall * 1e9); got != now+8*stampSecond {
		t.Errorf("a recorded stamp is used again: %d", got-now)
	}
}

// After as many renewals without an answer as are remembered, the last one is repeated:
// a stamp that is forgotten could be stored yet, and would seem another process's.
func TestUnansweredRenewalsRepeatThemselves(t *testing.T) {
	c := testConfig()
	s := State{Phase: Leading, Known: Current, Snap: lock("mine")}
	for i := range 6 {
		now := moment(time.Duration(i) * time.Second)
		record := s.Snap.Record
		record.Renewed = s.ownStamp(now.Wall)
		s = c.sent(s, Action{Op: Renew, Base: s.Snap, Record: record}, now)
		if want := min(i+1, 4); int(s.Own.Unseen) != want {
			t.Fatalf("%d sent: %d are taken for unseen", i+1, s.Own.Unseen)
		}
	}
	base := Stamp(testNow.Wall / 1000)
	if want := [4]Stamp{base + 3e6, base + 2e6, base + 1e6, base}; s.Own.Stamps != want {
		t.Errorf("remembered: %v, want %v", s.Own.Stamps, want)
	}
	// The last of them is stored already: a write that changes nothing would be none.
	s.Snap.Record.Renewed = s.Own.Stamps[0]
	if got := s.ownStamp(testNow.Wall); got != base+4e6 {
		t.Errorf("over the last one: %d", got-base)
	}
	seen := c.observe(s, Input{Kind: Seen, Now: testNow, Snap: s.Snap})
	if seen.Own.Unseen != 4 {
		t.Error("the same version was seen again, and the writes over it are forgotten")
	}
	if seen = c.observe(s, Input{Kind: Seen, Now: testNow, Snap: lock("mine", newer)}); seen.Own.Unseen != 0 {
		t.Error("another version is there, and the writes over the one before still count")
	}
}

func TestOutranksWithoutADefault(t *testing.T) {
	// A record without a key is of no revision, not of the default one that does not exist.
	if none := (DefaultRevision{Synced: true}); Outranks("", "canary", none) || Outranks("^", "stable", none) {
		t.Error("without a default revision, one without a revision outranks")
	}
	if Outranks("stable", "^canary", DefaultRevision{}) {
		t.Error("a local candidate outranks a remote one of another revision")
	}
}

func TestInstantsSaturate(t *testing.T) {
	for _, c := range []struct {
		from Instant
		d    time.Duration
		want Instant
	}{
		{5, -3, 2}, {-5, -3, -8}, {Never - 5, 5, Never}, {Never - 5, 6, Never}, {Never - 5, 4, Never - 1}, {Never, 0, Never},
	} {
		if got := c.from.After(c.d); got != c.want {
			t.Errorf("%d after %d: %d, want %d", c.d, c.from, got, c.want)
		}
	}
}

// The annotation of a nomination names no term. One that was seen beside another holder is left of an earlier term,
// and makes no nominee of a peer that takes the lock later under the same name.
func TestWhatIsLeftOfANomination(t *testing.T) {
	at := func(holder, nominee string, term int) Snapshot {
		s := Snapshot{Exists: true, Content: Readable, UID: UID{First: "x"}, Record: Record{Holder: holder, Transitions: term, Acquired: 7, Renewed: 7}}
		if nominee != "" {
			s.Notes.Nominated = Nomination{Identity: nominee, Transitions: term} // as it is decoded
		}
		return s
	}
	of := func(term int, s Snapshot) Snapshot { s.Notes.Nominated.Transitions = term; return s }
	transfer := at("b", "b", 5)
	transfer.Notes.Hold = Hold{Holder: "b", Transitions: 5, Seconds: 9, Reason: HoldForTransfer}
	others := transfer
	others.Notes.Hold.Holder = "c"
	pause := transfer
	pause.Notes.Hold.Reason = HoldForPause
	remade := at("d", "b", 4)
	remade.UID = UID{First: "y"}
	for name, c := range map[string]struct {
		was, next Snapshot
		nominated bool
	}{
		"the first that is seen":           {Snapshot{}, at("b", "b", 5), true},
		"none before":                      {at("d", "", 4), at("b", "b", 5), true},
		"of another":                       {at("d", "c", 4), at("b", "b", 5), true},
		"the same still":                   {at("b", "b", 5), at("b", "b", 5), true},
		"the next, and its end was missed": {at("b", "b", 4), at("b", "b", 5), true},
		"left beside another holder":       {at("d", "b", 4), at("b", "b", 5), false},
		"known to be left":                 {of(4, at("b", "b", 5)), at("b", "b", 5), false},
		"beside nobody":                    {at("", "b", 4), at("b", "b", 5), true},
		"that of another object":           {remade, at("b", "b", 5), true},
		"of a later term, which is undone": {at("d", "b", 6), at("b", "b", 5), true},
		"an operator's names its term":     {at("d", "b", 4), transfer, true},
		"an operator's hold of another":    {at("d", "b", 4), others, false},
		"an operator's hold for a pause":   {at("d", "b", 4), pause, false},
	} {
		c.next.Version = 9
		s := testConfig().observe(State{Known: Current, Snap: c.was}, Input{Now: testNow, Snap: c.next})
		if s.Snap.Nominated() != c.nominated {
			t.Errorf("%s: %+v, nominated %v", name, s.Snap.Notes.Nominated, !c.nominated)
		}
	}
}
