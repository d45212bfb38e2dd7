package electionmetrics

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestCandidateMetric(t *testing.T) {
	for now, want := range map[leaderelection.Status]float64{
		{Running: true, Warm: true}: 1, {Running: true}: 0, {Warm: true}: 0, {Running: true, Warm: true, Status: k8sleaderelection.Status{Unfit: true}}: 0,
	} {
		if got := canLead(now); got != want {
			t.Errorf("%+v: %v", now, got)
		}
	}
}
