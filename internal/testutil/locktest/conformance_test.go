package locktest

import "testing"

func TestConformance(t *testing.T) {
	for _, kind := range []Kind{ConfigMap, Lease} {
		t.Run(string(kind), func(t *testing.T) {
			Conformance(t, func(*testing.T) Harness { return NewStore(kind).Harness() })
		})
	}
	t.Run("leases that share watches", func(t *testing.T) {
		Conformance(t, func(*testing.T) Harness {
			store := NewStore(Lease)
			store.ShareWatches()
			return store.Harness()
		})
	})
}
