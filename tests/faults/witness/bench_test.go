package witness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// ledAt returns when a candidate began to lead the last of its elections, from its output.
func (p *process) ledAt(b *testing.B, elections int) time.Time {
	b.Helper()
	var last time.Time
	harness.Until(b, p.name+" leads", func() bool {
		lines := strings.Split(p.Out.String(), "leading ")[1:]
		if len(lines) != elections {
			return false
		}
		text, _, _ := strings.Cut(lines[elections-1], "\n")
		nanos, err := strconv.ParseInt(text, 10, 64)
		last = time.Unix(0, nanos)
		return err == nil
	})
	return last
}

// BenchmarkDeath measures the time from SIGKILL of the leader until the run function of a follower in another process starts, at
// 30/15/7.5 s. The figures are the median and the 99th percentile.
//
//	go test -bench Death -benchtime 100x ./tests/faults/witness
func BenchmarkDeath(b *testing.B) {
	for _, c := range []struct {
		name      string
		elections int
		fence     bool // is installed; otherwise the witness waits for the grace
		sidecar   bool // is the witness; otherwise the parent
	}{
		{"parent, fence", 1, true, false},
		{"parent, fence, 40 elections", 40, true, false},
		{"parent, no fence", 1, false, false},
		{"sidecar, fence", 1, true, true},
		{"sidecar, no fence", 1, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, "leases")
			env := []string{fmt.Sprint("MORE_ELECTIONS=", c.elections-1)}
			if c.fence {
				s.fence(c.elections)
				env = append(env, "FENCED=yes")
			}
			enter := func(n int) *process {
				p := s.pod(fmt.Sprint("c", n))
				env := slices.Clone(env)
				if c.sidecar {
					env = append(env, p.serve())
				}
				p.Process = p.run(env...)
				harness.Until(b, p.name+" is ready", func() bool { return strings.Contains(p.Out.String(), "ready") })
				return p
			}
			leader := enter(0)
			var all []time.Duration
			for n := range b.N {
				follower := enter(n + 1)
				leader.ledAt(b, c.elections)
				killed := time.Now()
				leader.signal(syscall.SIGKILL)
				all = append(all, follower.ledAt(b, c.elections).Sub(killed))
				leader.end(b)
				leader = follower
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// end waits for the end of a killed candidate, and ends its sidecar.
func (p *process) end(b *testing.B) {
	if p.Exit(b); p.sidecar != nil {
		p.sidecar.Kill()
	}
}
