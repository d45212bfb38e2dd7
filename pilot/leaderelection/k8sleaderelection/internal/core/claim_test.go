package core

import (
	"testing"
	"time"
)

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
	if n := s.Snap.Annotations; annotations.Hold != n.Hold || annotations.Request != n.Request || !annotations.Marker.Matches(record) {
		t.Errorf("annotations: %+v", annotations)
	}
	// A leader keeps its marker.
	s.Earlier.SettleAt = Never
	if _, annotations := c.renewal(s, testNow); !annotations.Marker.Matches(record) {
		t.Errorf("a leader removed its marker: %+v", annotations)
	}
	if s.Marked = false; true {
		if _, annotations := c.renewal(s, testNow); annotations.Marker != (Marker{}) {
			t.Errorf("a marker while settling: %+v", annotations)
		}
	}
}
