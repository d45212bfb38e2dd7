package core

import (
	"testing"

	"incumbent.dev/incumbent/internal/record"
)

// A term ended well if a release or handover of that term shows it.
func TestEndedWell(t *testing.T) {
	acting := lock("equal")
	settling := lock("equal", marked("c", 2))
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
		"another marker added": {settling, release(marked("d", 1)), false},
		"deleted":              {acting, release(deleted), false},
		"an older state":       {acting, release(older), false},
		"the same state":       {acting, release(func(s *Snapshot) { s.Version = acting.Version }), true},
		"record removed":       {acting, release(func(s *Snapshot) { s.Content = record.Missing }), false},
	} {
		if got := endedWell(c.a, c.b); got != c.want {
			t.Errorf("%s: ended well: %v", name, got)
		}
	}
}

// The annotation of a nomination names no term. If it was seen with another holder, it belongs to an earlier term.
func TestNominationLeftBehind(t *testing.T) {
	at := func(holder, nominee string, term int) Snapshot {
		s := Snapshot{Exists: true, Content: record.Readable, UID: "x", Record: Record{Holder: holder, Transitions: term, Acquired: 7, Renewed: 7}}
		if nominee != "" {
			s.Annotations.Nominated = Nomination{Identity: nominee, Transitions: term} // as decoded
		}
		return s
	}
	transfer := at("b", "b", 5)
	transfer.Annotations.Hold = Hold{Holder: "b", Transitions: 5, Seconds: 9, Reason: record.HoldForTransfer}
	others := transfer
	others.Annotations.Hold.Holder = "c"
	pause := transfer
	pause.Annotations.Hold.Reason = record.HoldForPause
	renewed := at("b", "b", 4)
	renewed.Record.Renewed++
	remade := at("d", "b", 4)
	remade.UID = "y"
	for name, c := range map[string]struct {
		was, next Snapshot
		nominated bool
	}{
		"next term, end missed":   {at("b", "b", 4), at("b", "b", 5), true},
		"of another object":       {remade, at("b", "b", 5), true},
		"of a later term, undone": {at("d", "b", 6), at("b", "b", 5), true},
		"hold names its term":     {at("d", "b", 4), transfer, true},
		"hold of another":         {at("d", "b", 4), others, false},
		"hold for a pause":        {at("d", "b", 4), pause, false},
	} {
		c.next.Version = 9
		s := testConfig().observe(State{Known: Current, Snap: c.was}, Input{Now: testNow, Snap: c.next})
		if s.Snap.Nominated() != c.nominated {
			t.Errorf("%s: %+v, nominated %v", name, s.Snap.Annotations.Nominated, !c.nominated)
		}
	}
}
