package core

import (
	"testing"
	"time"
)

func TestSameLock(t *testing.T) {
	one := func(uid string) Snapshot { return Snapshot{Exists: uid != "", UID: UID{First: uid}} }
	two := func(first, second string) Snapshot {
		return Snapshot{Exists: true, UID: UID{first, second}, Halves: InFirst | InSecond}
	}
	for _, c := range []struct {
		a, b Snapshot
		want bool
	}{
		{one("u"), one("u"), true}, {one("u"), one("v"), false}, {one("u"), one(""), false},
		{two("p", "s"), two("p", "s"), true}, {two("p", ""), two("p", "s"), true}, {two("p", "s"), two("", "s"), true}, {two("p", "s"), two("p", ""), true},
		{two("p", "s"), two("p", "t"), false}, {two("p", "s"), two("q", "s"), false}, {two("p", "s"), two("q", ""), false},
	} {
		if sameLock(c.a, c.b) != c.want || sameLock(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a.UID, c.b.UID, c.want)
		}
	}
}

// pairOf is a lock of two objects with a record of b's fourth term.
func pairOf(stands Halves) Snapshot {
	return Snapshot{
		Exists: true, UID: UID{"p", "s"}, Version: 20, Content: Readable, Halves: stands, Floor: 3,
		Record: Record{Holder: "b", Key: "stable", Lease: 15 * time.Second, Renewed: 7e6, Transitions: 3},
		Notes:  Notes{Marker: Marker{Identity: "b", Transitions: 3}},
	}
}

// What one object says is no end of a term that stood in the other.
func TestEndedWellOfTwoObjects(t *testing.T) {
	free := func(stands Halves) Snapshot {
		s := pairOf(stands)
		s.Version, s.Record, s.Notes = 30, Record{Transitions: 3}, Notes{}
		return s
	}
	const both = InFirst | InSecond
	for _, c := range []struct {
		held, free Halves
		want       bool
	}{
		{both, both, true}, {both, InFirst, true}, {both, InSecond, true},
		{InFirst, InFirst, true}, {InSecond, InSecond, true}, {InFirst, both, true},
		{InFirst, InSecond, false}, {InSecond, InFirst, false},
	} {
		if got := endedWell(pairOf(c.held), free(c.free)); got != c.want {
			t.Errorf("held in %b, free in %b: ended well %v", c.held, c.free, got)
		}
	}
}

// A leader whose record stands in one of two objects is none.
func TestHalfIsNotOurs(t *testing.T) {
	c := testConfig()
	c.Self = "b"
	for stands, want := range map[Halves]bool{0: true, InFirst | InSecond: true, InFirst: false, InSecond: false} {
		snap := pairOf(stands)
		s := State{Term: Term{UID: UID{"p", "s"}, Transitions: 3, Token: 20}, Snap: snap, Own: Own{Stamps: [4]Stamp{7e6}}}
		if c.ours(s) != want {
			t.Errorf("stands in %b: ours %v", stands, c.ours(s))
		}
		if !want && c.lossReason(s) != HalfLost {
			t.Errorf("stands in %b: lost because %s", stands, c.lossReason(s))
		}
	}
}

// A claim counts more terms than either object, unless a handover has counted it.
func TestClaimExceedsBothObjects(t *testing.T) {
	c := testConfig()
	for _, x := range []struct {
		nominated string
		floor     int
		want      int
	}{{"", 3, 4}, {"", 9, 10}, {"a", 3, 3}, {"a", 9, 10}} {
		snap := pairOf(InFirst)
		snap.Floor, snap.Notes = x.floor, Notes{}
		if x.nominated != "" {
			snap.Record.Holder, snap.Record.Acquired = x.nominated, snap.Record.Renewed
			snap.Notes.Nominated = Nomination{Identity: x.nominated, Transitions: snap.Record.Transitions}
		}
		record, _ := c.claim(State{Known: Current, Snap: snap, Count: 3}, testNow)
		if record.Transitions != x.want {
			t.Errorf("nominated %q, floor %d: claims term %d, want %d", x.nominated, x.floor, record.Transitions, x.want)
		}
	}
}
