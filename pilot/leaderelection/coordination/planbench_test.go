package coordination_test

import (
	"fmt"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// One pass over 500 elections of ten candidates each, in which nothing has changed.
func BenchmarkPlan500Elections(b *testing.B) {
	var all []*planned
	for range 500 {
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprintf("pod-%d.x", i))
		}
		p := plan(b, names...)
		p.step()
		p.step()
		p.claim()
		p.step()
		all = append(all, p)
	}
	for b.Loop() {
		for _, p := range all {
			if made := p.observer.Plan(p.now, p.wall, p.e, coordination.Own()); made.Lease != nil || len(made.Ping) > 0 {
				b.Fatal(made)
			}
		}
	}
}
