package coordinated

import "testing"

// served is an API server that serves LeaseCandidates and does not coordinate: Leases lose the fields of the feature, and
// no controller of Kubernetes' is there.
var served = stage{[]string{"--runtime-config=coordination.k8s.io/v1beta1=true"}, true, false}

// The feature is switched on, and off again, while an election runs that began without it: the strategy stands in an annotation, and
// moves to the spec together with the word that needs it there.
func TestTheFeatureIsSwitchedOnAndOff(t *testing.T) {
	newSwitched(t, off, true).through(on, off)
}

// The API is served without the feature: LeaseCandidates are the candidates, and the coordinator makes the lock and writes annotations. The
// feature follows.
func TestTheAPIIsServedWithoutTheFeature(t *testing.T) {
	newSwitched(t, served, false).through(on)
}
