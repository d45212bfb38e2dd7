package audit

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A recorded log, without the fields that are not read. Each library had a flip, a silent partition and a stopped leader (package
// tests/peers/audit).
func TestExamine_Recorded(t *testing.T) {
	const name = "peers.log.gz"
	text, err := os.ReadFile("testdata/" + name)
	harness.Must(t, err)
	log := NewLog()
	harness.Must(t, log.Read(name, bytes.NewReader(text)))
	r := Examine(log, Options{})
	if len(r.Incomplete) > 0 || r.ByTime > 0 {
		t.Errorf("incomplete %q, %d by time", r.Incomplete, r.ByTime)
	}
	for _, f := range r.Findings {
		if f.Rule != Late && f.Rule != Interleaved || f.Overlap <= 0 {
			t.Errorf("finding %+v", f)
		}
	}
	breaches := map[string]int{}
	for _, l := range r.Locks {
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
