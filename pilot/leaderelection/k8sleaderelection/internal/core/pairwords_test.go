package core

import "testing"

// A note of another term, or of another holder, claims nothing: the holder needs this object alone.
func TestAClaimIsOfItsTerm(t *testing.T) {
	for needs, want := range map[NeedsBoth]presence{
		{Identity: "a", Transitions: 3}: claim, {Identity: "a", Transitions: 2}: alone, {Identity: "b", Transitions: 3}: alone, {}: alone,
	} {
		s := Snapshot{Exists: true, Content: Readable, Record: Record{Holder: "a", Transitions: 3}, Notes: Notes{Needs: needs}}
		if got := s.presence(); got != want {
			t.Errorf("%+v: %d, want %d", needs, got, want)
		}
	}
}

// The note beside a record names the other object.
func TestTheNoteNamesTheOtherObject(t *testing.T) {
	w := PairWrite{Self: "a", Record: Record{Holder: "a", Transitions: 3}}
	if got, want := w.Needs(Snapshot{UID: UID{First: "u"}}), (NeedsBoth{Identity: "a", Transitions: 3, Other: "u"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.Record.Holder = "b"
	if got := w.Needs(Snapshot{UID: UID{First: "u"}}); got != (NeedsBoth{}) {
		t.Errorf("of a nominee: %+v", got)
	}
}

// In a store without UIDs, too, an object that has come or gone is another one.
func TestAnObjectThatHasComeOrGoneIsNotOverwritten(t *testing.T) {
	there := Snapshot{Exists: true, Content: Readable}
	for _, c := range []struct {
		was, now Snapshot
		want     bool
	}{{Snapshot{}, there, true}, {there, Snapshot{}, true}, {there, there, false}} {
		w := PairWrite{Self: "a", Base: Pair{Secondary: c.was}, Record: Record{Holder: "a", Transitions: 1}}
		if got := w.Yields(c.now); got != c.want {
			t.Errorf("from there %v to there %v: yields %v", c.was.Exists, c.now.Exists, got)
		}
	}
}
