package coordination_test

import (
	"fmt"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// A strategy of one's own: the zone of the databases first, and then the order of this module. Candidates ask for it
// by its name in their LeaseCandidate's spec.strategy.
func ExampleRegistry_With() {
	zone := func(_ coordination.Situation, a, b coordination.Candidate) int {
		here := func(c coordination.Candidate) bool { return c.Labels["topology.kubernetes.io/zone"] == "eu-1" }
		switch {
		case here(a) == here(b):
			return 0
		case here(a):
			return -1
		}
		return 1
	}
	strategies := coordination.Own().With("example.com/Zone", coordination.Best(
		zone, coordination.InDefaultRevision, coordination.LocalFirst, coordination.FitFirst, coordination.NewestBinary))

	best, strategy, err := strategies.Choose(coordination.Situation{DefaultRevision: "stable"}, []coordination.Candidate{
		{Name: "pod-a.istio-leader", Revision: "stable", BinaryVersion: "1.2.0", Strategy: "example.com/Zone"},
		{Name: "pod-b.istio-leader", Revision: "canary", BinaryVersion: "1.2.0", Strategy: "example.com/Zone",
			Labels: map[string]string{"topology.kubernetes.io/zone": "eu-1"}},
	})
	fmt.Println(best.Name, strategy, err)
	// Output: pod-b.istio-leader example.com/Zone <nil>
}
