package witness

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// stamp is the time at which a candidate began to lead, in its output.
func (p *process) ledAt(b *testing.B) time.Time {
	b.Helper()
	var at time.Time
	harness.Until(b, p.name+" leads", func() bool {
		for line := range strings.Lines(p.Out.String()) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "leading "); ok {
				var nanos int64
				if _, err := fmt.Sscan(text, &nanos); err == nil {
					at = time.Unix(0, nanos)
				}
			}
		}
		return !at.IsZero()
	})
	return at
}

// BenchmarkDeath measures the time from SIGKILL of the leader until the run function of a follower in another process starts, at
// 30/15/7.5 s. The figures are the median and the 99th percentile.
//
//	go test -bench Death -benchtime 100x ./tests/faults/witness
func BenchmarkDeath(b *testing.B) {
	for name, env := range map[string][]string{"fence": {"FENCED=yes"}, "grace": nil} {
		b.Run(name, func(b *testing.B) {
			s := newStage(b, "leases")
			leader := s.leader("c0", env...)
			var all []time.Duration
			for i := range b.N {
				follower := s.start(fmt.Sprintf("c%d", i+1), env...)
				harness.Until(b, "the next candidate follows", func() bool { return strings.Contains(follower.Out.String(), "ready") })
				killed := time.Now()
				leader.signal(syscall.SIGKILL)
				all = append(all, follower.ledAt(b).Sub(killed))
				leader.Exit(b)
				leader = follower
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}
