package locks

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// The encodings of typed clients.
var encodings = []struct{ name, content string }{
	{"json", "application/json"},
	{"protobuf", "application/vnd.kubernetes.protobuf"},
}

func TestConformance(t *testing.T) {
	for _, kind := range []locktest.Kind{locktest.ConfigMap, locktest.Lease} {
		for _, encoding := range encodings {
			t.Run(string(kind)+"/"+encoding.name, func(t *testing.T) {
				s := newScene(t, kind, func(c *rest.Config) { c.ContentType = encoding.content })
				locktest.Conformance(t, s.harness)
			})
		}
	}
}

// Locks that share watches pass the suite with and without permission to watch the namespace.
func TestConformance_Shared(t *testing.T) {
	wide := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"watch"}}
	for name, more := range map[string][]rbacv1.PolicyRule{"allowed": {wide}, "by name alone": nil} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, locktest.Lease, func(*rest.Config) {}, more...)
			s.shared = &k8sresourcelock.Shared{Client: s.candidate.CoordinationV1(), MinSharedWatches: 1}
			locktest.Conformance(t, s.harness)
		})
	}
}
