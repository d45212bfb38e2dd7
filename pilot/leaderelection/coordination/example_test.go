package coordination_test

import (
	"fmt"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// A custom strategy that prefers a zone, then the order of DefaultRevision. A Controller with these strategies coordinates the elections
// whose candidates request "example.com/Zone".
func ExampleRegistry() {
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
	strategy := coordination.Best(zone, coordination.CompareDefaultRevision)
	best, _ := strategy(coordination.Situation{DefaultRevision: "stable"}, []coordination.Candidate{
		{Name: "pod-a.istio-leader", Revision: "stable"},
		{Name: "pod-b.istio-leader", Revision: "canary", Labels: map[string]string{"topology.kubernetes.io/zone": "eu-1"}},
	})
	strategies := coordination.Own()
	strategies["example.com/Zone"] = strategy
	fmt.Println(best.Name, len(strategies))
	// Output: pod-b.istio-leader 2
}
