package audit

import (
	"bytes"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
)

// FuzzLog reads any bytes, also appended to a correct log. Neither reading nor judging may panic, and the result has no negative duration.
func FuzzLog(f *testing.F) {
	s := auditlog.New(f)
	s.Play("lock stable-1 stable-1 1; bundle stable-1 shop one; lock stable-1 canary-1 2; lock canary-1 canary-1 2; unanswered canary-1 bundles; " +
		"bundle stable-1 shop two; remove leases istio-system bundles; remove configmaps shop bundle; lock canary-1 - 3")
	whole := s.Lines.Bytes()
	f.Add(whole, []byte(nil))
	for line := range bytes.Lines(whole) {
		f.Add(line, whole)
	}
	f.Add([]byte("\x1f\x8b"), whole)
	f.Add([]byte(`{"kind":"EventList"}`), whole)
	f.Add([]byte(`{"kind":"Event","stage":"ResponseComplete","verb":"create","objectRef":{"resource":"leases"},"requestObject":{"spec":[]}}`), whole)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		log := NewLog()
		log.Objects = true
		_ = log.Read("a", bytes.NewReader(a))
		_ = log.Read("b", bytes.NewReader(b))
		o := options()
		o.MaxChanges, o.Window, o.MaxLeaderless = 1, 1, 1
		for _, finding := range Examine(log, o).Findings {
			if finding.Late < 0 || finding.Overlap < 0 || finding.Count < 1 {
				t.Errorf("%+v", finding)
			}
		}
	})
}
