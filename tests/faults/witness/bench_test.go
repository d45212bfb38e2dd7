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

// ledAt returns when a candidate began to lead the last of its elections, from its output.
func (p *process) ledAt(b *testing.B, elections int) time.Time {
	b.Helper()
	var at time.Time
	harness.Until(b, p.name+" leads", func() bool {
		led := 0
		for line := range strings.Lines(p.Out.String()) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "leading "); ok {
				var nanos int64
				if _, err := fmt.Sscan(text, &nanos); err == nil {
					led++
					at = time.Unix(0, nanos)
				}
			}
		}
		return led == elections
	})
	return at
}

// BenchmarkDeath measures the time from SIGKILL of the leader until the run function of a follower in another process starts, at
// 30/15/7.5 s. The figures are the median and the 99th percentile.
//
//	go test -bench Death -benchtime 100x ./tests/faults/witness
func BenchmarkDeath(b *testing.B) {
	for name, env := range map[string][]string{"fence": {"FENCED=yes"}, "grace": nil, "fence, 40 elections": {"FENCED=yes", "MORE_ELECTIONS=39"}} {
		b.Run(name, func(b *testing.B) {
			elections := 1
			if strings.Contains(name, "40") {
				elections = 40
			}
			s := newStage(b, "leases")
			leader := s.leader("c0", env...)
			var all []time.Duration
			for i := range b.N {
				follower := s.start(fmt.Sprintf("c%d", i+1), env...)
				harness.Until(b, "the next candidate follows", func() bool { return strings.Contains(follower.Out.String(), "ready") })
				leader.ledAt(b, elections)
				killed := time.Now()
				leader.signal(syscall.SIGKILL)
				all = append(all, follower.ledAt(b, elections).Sub(killed))
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
