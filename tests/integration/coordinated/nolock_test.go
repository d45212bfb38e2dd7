package coordinated

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// Two strategies from the beginning: Kubernetes' controller makes no lock, and the candidates alone can say why nobody leads.
func TestTwoStrategiesAndNoLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	coordinator := w.coordinate(w.recording)
	// Neither answers before there are two: Kubernetes' controller would make the lock of the first.
	for pod, strategy := range map[string]string{"a": coordination.DefaultRevision, "b": other} {
		w.published(pod, strategy, nil, nil)
	}
	for _, pod := range []string{"a", "b"} {
		w.has("StrategiesDisagree", "Warning coordination.k8s.io/v1beta1 LeaseCandidate "+pod+".x "+string(w.leaseCandidate(pod).UID))
	}
	if n := coordinator.log.Count("ask for different strategies"); n != 1 || len(w.events("StrategiesDisagree")) != 2 || w.lease() != nil {
		t.Errorf("it is said %d times, %q, beside %+v", n, w.events("StrategiesDisagree"), w.lease())
	}
}
