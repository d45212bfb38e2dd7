package witness

import (
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// serve starts the sidecar of the pod, and returns the variable for the candidate.
func (p *process) serve() string {
	p.s.Helper()
	path := filepath.Join(filepath.Dir(p.access), "socket")
	p.sidecar = p.run("SERVE=" + path)
	harness.Until(p.s.TB, "the sidecar is listening", func() bool { return strings.Contains(p.sidecar.Errors.String(), "witness is listening") })
	return "SOCKET=" + path
}

// The candidate registers its term again at a renewal. The next renewal is sent after the registration.
func TestSidecar_Restarts(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	p := s.pod("a")
	p.Process = p.run(p.serve(), "LEASE=16s")
	harness.Until(t, "a leads", p.leads)
	p.sidecar.Kill()
	if state := s.state(); !strings.HasPrefix(state, "held") {
		t.Fatal("without a witness the lock is", state)
	}
	p.serve()
	harness.Until(t, "the candidate connects", func() bool { return strings.Contains(p.sidecar.Errors.String(), "process connected") })
	connected := s.read().ResourceVersion
	harness.Until(t, "the candidate renews", func() bool { return s.read().ResourceVersion != connected })
	p.Kill()
	s.freed()
}
