package core

import (
	"testing"
	"time"
)

// ours makes the lock that s has seen that of its present term.
func ours(s State, phase Phase) State {
	r := s.Snap.Record
	s.Phase, s.Marked, s.Why = phase, true, Acquired
	s.Term, s.Own.Stamps[0] = Term{UID: s.Snap.UID, Transitions: r.Transitions, Token: 15}, r.Renewed
	s.Own.Renewed, s.Cover = testNow.Mono, testNow.Plus(10*time.Second)
	s.BeganAt = testNow.Mono
	s.Drain.Until = seconds(30)
	if phase == Releasing {
		s.Drain.Until = seconds(10)
	}
	return s
}

// nowStamp is that of a write at testNow over an old record.
const nowStamp = Stamp(1_780_000_000e6)

// A claim replaces the record as a whole.
func TestWhatAClaimWrites(t *testing.T) {
	c := testConfig()
	transferred := lock("transferred to me")
	for name, x := range map[string]struct {
		lock  Snapshot
		trans int
		hold  Hold
	}{
		"over another's": {lock("lower, unmarked, held"), 4, Hold{}},
		"of a nominee":   {transferred, 3, transferred.Notes.Hold},
	} {
		s := seenAt(0, x.lock)
		s.Count = x.lock.Record.Transitions
		record, notes := c.claim(s, testNow)
		want := Record{Holder: "a", Key: "stable", Lease: 15 * time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: x.trans}
		if record != want || notes.Hold != x.hold || notes.Nominated != (Nomination{}) {
			t.Errorf("%s: %+v with %+v", name, record, notes)
		}
	}
}

// A renewal writes lease and key as they are configured now: a process that came back with
// others must not leave those of before.
func TestWhatARenewalWrites(t *testing.T) {
	c := testConfig()
	s := ours(seenAt(0, lock("mine, asked, held")), Leading)
	s.Snap.Record.Key, s.Snap.Record.Lease = "canary", time.Second
	record, notes := c.renewal(s, testNow)
	want := Record{Holder: "a", Key: "stable", Lease: 15 * time.Second, Acquired: 5e6, Renewed: nowStamp, Transitions: 3}
	if record != want {
		t.Errorf("%+v, want %+v", record, want)
	}
	if n := s.Snap.Notes; notes.Hold != n.Hold || notes.Request != n.Request || !notes.Marker.names(record) {
		t.Errorf("beside it: %+v", notes)
	}
	// Once we act the marker stays, whatever comes up.
	s.Earlier.SettleAt = Never
	if _, notes := c.renewal(s, testNow); !notes.Marker.names(record) {
		t.Errorf("a leader took its marker back: %+v", notes)
	}
	if s.Marked = false; true {
		if _, notes := c.renewal(s, testNow); notes.Marker != (Marker{}) {
			t.Errorf("one that settles says that it acts: %+v", notes)
		}
	}
}

// A release says that the lock is free from now on, in a term that is counted on from: with
// the shortest lease, since peers wait for the lease of an empty record too.
func TestWhatAReleaseWrites(t *testing.T) {
	s := ours(seenAt(0, lock("mine")), Releasing)
	want := Record{Lease: time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 3}
	a := testConfig().decide(s, testNow)
	if a.Op != Release || a.Record != want || a.Notes != (Notes{}) || a.Base != s.Snap {
		t.Errorf("%+v", a)
	}
	for next, want := range map[float64]Op{-1: Release, 0: Release, 1: NoOp} {
		s.Effort.Writes.Next = seconds(next)
		if a := testConfig().decide(s, testNow); a.Op != want || a.Op == NoOp && a.Wake != seconds(next) {
			t.Errorf("writes are held back until %v: %s", next, call(a))
		}
	}
}

// A handover writes the challenger in. Its lease is not what it writes itself: so its own
// first write changes the record even within one second.
func TestWhatAHandoverWrites(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		lock Snapshot
		hold Hold
	}{
		"to a challenger": {lock("mine, accepted"), Hold{}},
		"an operator's": {
			lock("mine, to transfer", asked(func(r *Request) { r.Requester, r.Note = "kubectl", "maintenance" })),
			Hold{Holder: "b", Transitions: 4, Seconds: 60, Requester: "kubectl", Reason: HoldForTransfer, Note: "maintenance"},
		},
		"an operator's, for no time": {
			lock("mine, to transfer", asked(func(r *Request) { r.HoldSeconds = 0 })),
			Hold{Holder: "b", Transitions: 4, Seconds: 1, Reason: HoldForTransfer},
		},
	} {
		s := ours(seenAt(0, x.lock), Releasing)
		s.Count = 3
		a := c.decide(s, testNow)
		want := Record{Holder: "b", Key: "canary", Lease: 16 * time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 4}
		if a.Op != HandOver || a.Record != want || a.Notes != (Notes{Nominated: Nomination{Identity: "b", Transitions: 4}, Hold: x.hold}) {
			t.Errorf("%s: %s %+v with %+v", name, a.Op, a.Record, a.Notes)
		}
	}
}

// What a write that was sent leaves behind.
func TestWhatASentWriteLeaves(t *testing.T) {
	c := testConfig()
	peer := seenAt(0, lock("lower, unmarked")) // may act for lease and grace: 20 s
	peer.Count = 3
	record, notes := c.claim(peer, testNow)
	s := c.sent(peer, Action{Op: Acquire, Base: peer.Snap, Record: record, Notes: notes}, testNow)
	if s.Earlier.SettleAt != seconds(20) || s.Earlier.Until != seconds(20) || s.Flight.Base != 20 || s.Own.Unseen != 1 || s.Own.Stamps[0] != nowStamp {
		t.Errorf("a claim: %+v", s)
	}
	holding := ours(seenAt(0, lock("mine")), Settling)
	holding.Earlier.SettleAt, holding.Earlier.Until = seconds(3), seconds(5)
	record, notes = c.renewal(holding, testNow)
	s = c.sent(holding, Action{Op: Renew, Base: holding.Snap, Record: record, Notes: notes}, testNow)
	if s.Earlier.SettleAt != seconds(3) || s.Earlier.Until != seconds(5) || s.Drain.Sent || s.Own.Unseen != 1 || s.Own.Stamps != [4]Stamp{nowStamp, 7e6} {
		t.Errorf("a renewal: %+v", s)
	}
	// The last stamp once more: the earlier ones are not forgotten for it.
	again := c.sent(s, Action{Op: Renew, Base: holding.Snap, Record: record, Notes: notes}, testNow)
	if again.Own.Stamps != s.Own.Stamps {
		t.Errorf("a renewal of the same bytes: remembered are %v", again.Own.Stamps)
	}
	for _, op := range []Op{Release, HandOver} {
		s := c.sent(holding, Action{Op: op, Base: holding.Snap, Record: record}, testNow)
		if !s.Drain.Sent || s.Own.Unseen != 0 || s.Own.Stamps != holding.Own.Stamps {
			t.Errorf("%s: %+v", op, s)
		}
	}
	sent := holding
	sent.Drain.Sent = true
	if !c.sent(sent, Action{Op: Renew, Base: holding.Snap, Record: record}, testNow).Drain.Sent {
		t.Error("a renewal took back that a release may have been stored")
	}
	reading := c.sent(holding, Action{Op: Read}, testNow)
	if reading.Own.Unseen != 0 || reading.Flight.Op != Read || reading.Drain.Sent {
		t.Errorf("a read: %+v", reading)
	}
	// Each request in a row is followed by a longer pause, up to a lease.
	asking := seenAt(0, lock("lower, hands over"))
	for i, wait := range []float64{2, 4, 8, 15, 15, 15, 15, 15} {
		asking = c.sent(asking, Action{Op: Ask, Base: asking.Snap}, testNow)
		if asking.Asking.NotBefore != seconds(wait) || !asking.Asking.Wanted || int(asking.Asking.Count) != i+1 {
			t.Errorf("request %d: asks again in %v", i+1, testNow.Mono.Until(asking.Asking.NotBefore))
		}
	}
}

// Who judges by a comparison of its own cannot tell who outranks it, and hands over only
// while it is unfit. Without ranks there is nothing to judge by.
func TestWhoHandsOver(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*Config, *State)
		want   bool
	}{
		"ranked":           {func(*Config, *State) {}, true},
		"ranked, unsynced": {func(_ *Config, s *State) { s.Default.Synced = false }, false},
		"external":         {func(c *Config, _ *State) { c.Ranked, c.External = false, true }, false},
		"external, unfit":  {func(c *Config, s *State) { c.Ranked, c.External, s.Unfit = false, true, true }, true},
		"unranked":         {func(c *Config, s *State) { c.Ranked, s.Default.Synced = false, false }, true},
	} {
		c, s := testConfig(), seenAt(0, lock("mine"))
		x.change(&c, &s)
		if got := c.handsOver(s); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
