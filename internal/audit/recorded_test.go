package audit

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Recorded logs of tests/peers/upgrade, without the fields that are not read. Both revisions use istiod's elector, and the default
// revision changes twice: the former leader keeps writing.
func TestExamine_Recorded(t *testing.T) {
	file, err := os.Open("testdata/istiod-flip.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := NewLog()
	if err := log.Read(file.Name(), file); err != nil {
		t.Fatal(err)
	}
	r := Examine(log, Options{})
	if len(r.Findings) == 0 || len(r.Incomplete) > 0 || r.ByTime > 0 {
		t.Errorf("findings %v, incomplete %q, %d by time", r.Findings, r.Incomplete, r.ByTime)
	}
	for _, f := range r.Findings {
		t.Logf("%s of %s in %s: %d writes, %v after the loss, overlap %v", f.Rule, f.Pod, f.Lock.Name, f.Count, time.Duration(f.Late), time.Duration(f.Overlap))
		if !strings.HasPrefix(f.Pod, "pilot-") || f.Rule != Late && f.Rule != Interleaved || f.Overlap <= 0 {
			t.Errorf("finding %+v", f)
		}
	}
}
