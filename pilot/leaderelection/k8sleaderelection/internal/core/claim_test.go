package core

import (
	"testing"
	"time"
)

// A claim counts above both objects, unless a handover has counted it.
func TestClaim_Pair(t *testing.T) {
	c := testConfig()
	for _, x := range []struct {
		nominated string
		floor     int
		want      int
	}{{"", 3, 4}, {"", 9, 10}, {"a", 3, 3}, {"a", 9, 10}} {
		snap := pairOf(InFirst)
		snap.Floor, snap.Annotations = x.floor, Annotations{}
		if x.nominated != "" {
			snap.Record.Holder, snap.Record.Acquired = x.nominated, snap.Record.Renewed
			snap.Annotations.Nominated = Nomination{Identity: x.nominated, Transitions: snap.Record.Transitions}
		}
		record, _ := c.claim(State{Known: Current, Snap: snap, Count: 3}, testNow)
		if record.Transitions != x.want {
			t.Errorf("nominated %q, floor %d: claims term %d, want %d", x.nominated, x.floor, record.Transitions, x.want)
		}
	}
}

func TestNextTransition(t *testing.T) {
	for name, test := range map[string]struct {
		s    State
		want int
	}{
		"absent":         {State{}, 0},
		"deleted":        {State{Count: 7}, 0},
		"no record":      {State{Snap: Snapshot{Exists: true, Content: Missing}}, 1},
		"record removed": {State{Count: 7, Snap: Snapshot{Exists: true, Content: Missing}}, 8},
		"with a record":  {State{Count: 7, Snap: Snapshot{Exists: true, Content: Readable, Record: Record{Transitions: 7}}}, 8},
		"unreadable":     {State{Count: 7, Snap: Snapshot{Exists: true, Content: Unreadable}}, 8},
		"with a floor":   {State{Snap: Snapshot{Exists: true, Content: Missing, Floor: 3}}, 4},
		"at the maximum": {State{Count: maxTransitions, Snap: Snapshot{Exists: true, Content: Readable}}, maxTransitions},
	} {
		if got := test.s.nextTransition(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// A claim replaces the whole record.
func TestClaim_Record(t *testing.T) {
	c := testConfig()
	transferred := lock("transferred to me")
	for name, x := range map[string]struct {
		lock  Snapshot
		trans int
		hold  Hold
	}{
		"another holder": {lock("lower, unmarked, held"), 4, Hold{}},
		"nominee":        {transferred, 3, transferred.Annotations.Hold},
	} {
		s := seenAt(0, x.lock)
		s.Count = x.lock.Record.Transitions
		record, annotations := c.claim(s, testNow)
		want := Record{Holder: "a", Key: "stable", Lease: 15 * time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: x.trans}
		if record != want || annotations.Hold != x.hold || annotations.Nominated != (Nomination{}) {
			t.Errorf("%s: %+v with %+v", name, record, annotations)
		}
	}
}

// A renewal writes lease and key from the present configuration.
func TestRenewal_Record(t *testing.T) {
	c := testConfig()
	s := ours(seenAt(0, lock("mine, asked, held")), Leading)
	s.Snap.Record.Key, s.Snap.Record.Lease = "canary", time.Second
	record, annotations := c.renewal(s, testNow)
	want := Record{Holder: "a", Key: "stable", Lease: 15 * time.Second, Acquired: 5e6, Renewed: nowStamp, Transitions: 3}
	if record != want {
		t.Errorf("%+v, want %+v", record, want)
	}
	if n := s.Snap.Annotations; annotations.Hold != n.Hold || annotations.Request != n.Request || !annotations.Marker.matches(record) {
		t.Errorf("annotations: %+v", annotations)
	}
	// A leader keeps its marker.
	s.Earlier.SettleAt = Never
	if _, annotations := c.renewal(s, testNow); !annotations.Marker.matches(record) {
		t.Errorf("a leader removed its marker: %+v", annotations)
	}
	if s.Marked = false; true {
		if _, annotations := c.renewal(s, testNow); annotations.Marker != (Marker{}) {
			t.Errorf("a marker while settling: %+v", annotations)
		}
	}
}
