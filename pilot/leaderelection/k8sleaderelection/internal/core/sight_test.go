package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// An event that is older than the known lock changes nothing. A newer one shows whether an acquire was stored.
func TestObserve_Age(t *testing.T) {
	s := follower(testConfig(), lock("equal"), "stable")
	s.Own.AcquireUnknown = true
	old := testConfig().absorb(s, Input{Kind: Seen, Now: testNow, Snap: lock("equal", older), Beats: true})
	if next := testConfig().absorb(s, later(0, lock("equal", newer))); old != s || next.Own.AcquireUnknown {
		t.Errorf("older: %+v\nnewer: %+v", old, next)
	}
}

// The annotation of a nomination names no term. If it was seen with another holder, it belongs to an earlier term.
func TestNominationLeftBehind(t *testing.T) {
	at := func(holder, nominee string, term int) Snapshot {
		s := Snapshot{Exists: true, Content: record.Readable, UID: "x", Record: Record{Holder: holder, Transitions: term, Lease: 16 * time.Second, Acquired: 7, Renewed: 7}}
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
	again := at("b", "b", 4)
	again.Record.Acquired, again.Record.Renewed = 9, 9
	ours := at("a", "a", 4)
	ours.Record.Lease = 30 * time.Second
	leads := at("b", "b", 4)
	leads.Record.Lease = 15 * time.Second
	unnamed := at("b", "", 4)
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
		"used, equal times again": {at("b", "b", 4), again, false},
		"renewed, times restored": {renewed, again, false},
		"lease of a leader":       {Snapshot{}, leads, false},
		"own other lease":         {Snapshot{}, ours, true},
		"written later":           {unnamed, at("b", "b", 4), false},
		"hold for a pause":        {at("d", "b", 4), pause, false},
	} {
		c.next.Version = 9
		s := testConfig().observe(&State{Sight: Sight{Known: Current, Snap: c.was}}, Input{Now: testNow, Snap: c.next})
		if s.Snap.Nominated() != c.nominated {
			t.Errorf("%s: %+v, nominated %v", name, s.Snap.Annotations.Nominated, !c.nominated)
		}
	}
}

// Only a read that was sent after the watch began closes its gap.
func TestWatchGap(t *testing.T) {
	c := testConfig()
	for before, want := range map[Op]Knowledge{Read: StaleGap, NoOp: Current} {
		s := c.absorb(calling(seenAt(0, lock("equal")), before), Input{Kind: Watching, Now: testNow, Gap: true})
		if before == NoOp {
			s = calling(s, Read)
		}
		if s = c.replied(s, reply(1, OK, lock("equal", newer))); s.Known != want {
			t.Errorf("call %q before the watch: %v", before, s.Known)
		}
	}
}

func TestActsUntil(t *testing.T) {
	for _, x := range []struct {
		lock  string
		phase Phase
		acts  bool
	}{
		{"equal, unmarked", Following, true}, {"nominated", Following, false}, {"free", Following, false}, {"mine", Following, false},
		{"mine", Settling, false}, {"mine", Leading, true}, {"mine", Draining, true}, {"mine", Releasing, false},
	} {
		s := seenAt(0, lock(x.lock))
		s.Phase = x.phase
		if want := map[bool]Instant{true: seconds(15)}[x.acts]; testConfig().ActsUntil(&s) != want {
			t.Errorf("%s, while %s: acts %v", x.lock, x.phase, !x.acts)
		}
	}
}
