package audit

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func recorded(t *testing.T, name string) Report {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	log := NewLog()
	if err := log.Read(name, bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	r := Examine(log, Options{})
	if len(r.Incomplete) > 0 || r.ByTime > 0 {
		t.Errorf("%s: incomplete %q, %d by time", name, r.Incomplete, r.ByTime)
	}
	for _, f := range r.Findings {
		if f.Rule != Late && f.Rule != Interleaved || f.Overlap <= 0 {
			t.Errorf("%s: finding %+v", name, f)
		}
	}
	return r
}

// Recorded logs, without the fields that are not read. Each library had a flip, a silent partition and a stopped leader
// (package tests/peers/audit). In the log istiod-flip, both revisions use istiod's elector.
func TestExamine_Recorded(t *testing.T) {
	if r := recorded(t, "istiod-flip.log.gz"); len(r.Findings) == 0 {
		t.Error("istiod-flip: no finding")
	}
	breaches := map[string]int{}
	for _, l := range recorded(t, "peers.log.gz").Locks {
		run := l.Namespace[strings.Index(l.Namespace, "run-")+4 : strings.LastIndex(l.Namespace, "-")]
		if breaches[run] = l.Breaches; l.Terms < 2 || l.Judged == 0 {
			t.Errorf("%s: %+v", run, l)
		}
	}
	for _, fault := range []string{"flip", "partition", "stop"} {
		for library, convict := range map[string]bool{"incumbent": false, "istio": true, "client-go": true} {
			run := fault + "-" + library
			if n, judged := breaches[run]; !judged || convict != (n > 0) {
				t.Errorf("%s: %d writes without the lock, judged: %v; want some: %v", run, n, judged, convict)
			}
		}
	}
}
