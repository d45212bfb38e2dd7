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
