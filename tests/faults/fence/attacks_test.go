package fence

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// operator returns a client of a service account that may patch the lock and operate it.
func (s *stage) operator() kubernetes.Interface {
	s.t.Helper()
	config := s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: "operator", ServiceAccount: "operator", Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, ResourceNames: []string{election},
			Verbs: []string{"get", "update", "patch", fence.OperateVerb},
		}},
	})
	return cluster.ClientFor(s.t, config).Kube()
}

// Annotations of incumbent are commands. Permission to patch the lock does not suffice to write them.
func TestLock_Commands(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s, _, b := guardedLock(t, kind)
		other, operator, coordinator := s.podOf("o", "other").Kube(), s.operator(), s.podOf("co", "coordinator").Kube()
		missing := "requires the verb operate"
		for _, key := range []string{
			locks.MarkerAnnotation, locks.HandoverRequestAnnotation, locks.NominatedAnnotation, locks.HoldAnnotation,
			locks.StrategyAnnotation, locks.PreferredHolderAnnotation, locks.MultiLockAnnotation, "incumbent.dev/later",
			locks.LeaseHolderKey, // an invalid key makes the record unreadable
		} {
			set := fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, key)
			change := fmt.Sprintf(`{"metadata":{"annotations":{%q:"y"}}}`, key)
			remove := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key)
			s.refused("another account sets "+key, s.patch(other, set), election, missing)
			s.allowed("an operator sets "+key, s.patch(operator, set))
			s.refused("another account changes "+key, s.patch(other, change), election, missing)
			s.refused("another account removes "+key, s.patch(other, remove), election, missing)
			s.allowed("another account adds a label", s.patch(other, `{"metadata":{"labels":{"x":"`+strings.ReplaceAll(key, "/", ".")+`"}}}`))
			s.allowed("a candidate changes "+key, s.patch(b, change))
			s.allowed("a coordinator removes "+key, s.patch(coordinator, remove))
		}
		s.refused("an operator releases the lock", s.update(operator, record{transitions: 3}), "only the holder may release")
		s.allowed("an administrator deletes the lock", s.delete(s.admin))
		s.refused("another account creates the lock with a hold", s.create(other, record{notes: map[string]string{locks.HoldAnnotation: "{}"}}), missing)
	})
}
