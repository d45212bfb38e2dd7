package locktest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestConformance(t *testing.T) {
	for _, kind := range []Kind{ConfigMap, Lease} {
		t.Run(string(kind), func(t *testing.T) {
			Conformance(t, func(*testing.T) Harness { return NewStore(kind).Harness() })
		})
	}
	t.Run("multi", func(t *testing.T) {
		Conformance(t, func(*testing.T) Harness { return NewPair().Harness() })
	})
	t.Run("leases that share watches", func(t *testing.T) {
		Conformance(t, func(*testing.T) Harness { return sharing(NewStore(Lease)) })
	})
}

// sharing is a store's harness whose locks watch by way of a hub each.
func sharing(s *Store) Harness {
	h := s.Harness()
	h.Lock = func(identity, key string) Locker {
		c := s.Client(identity)
		return &k8sresourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Client: c,
			LockConfig: k8sresourcelock.ResourceLockConfig{Identity: identity, Key: key},
			Hub:        &k8sresourcelock.WatchHub{Client: c, ShareFrom: 1},
		}
	}
	return h
}
