package fence

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A write that changes the record is limited too. Otherwise one acquisition could fill the object.
func TestLock_SizeOfRecordWrites(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s, a, b := guardedLock(t, kind)
		notes := func(bytes int) map[string]string { return map[string]string{"x": strings.Repeat("x", bytes)} }
		later := record{holder: "a", transitions: 3, renewed: epoch.Add(second)}
		later.notes = notes(250 << 10)
		s.refused("a renewal that fills the lock", s.update(a, later), "too large")
		s.refused("an acquisition that fills the lock", s.update(b, record{holder: "b", transitions: 4, notes: notes(250 << 10)}), "too large")
		s.refused("an acquisition with 70 KiB", s.update(b, record{holder: "b", transitions: 4, notes: notes(70 << 10)}), "too large")
		s.allowed("an acquisition with 60 KiB", s.update(b, record{holder: "b", transitions: 4, notes: notes(60 << 10)}))
		s.put(record{holder: "a", transitions: 3, notes: notes(100 << 10)})
		s.allowed("an acquisition of a large lock, with a marker", s.update(b, record{holder: "b", transitions: 4, notes: map[string]string{
			"x": strings.Repeat("x", 100<<10), locks.MarkerAnnotation: "v1 b 4 handover",
		}}))
	})
}

// An election in mode audit does not weaken the policies of another one in the same namespace.
func TestFence_ModesInOneNamespace(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		holder, other := s.pod("a"), s.pod("b")
		s.put(record{holder: "a", transitions: 3})
		audited := s.declaration()
		audited.Election = "audited"
		audited.Mode = fence.Audit
		audited.Guards = nil
		s.install(audited, s.declaration())
		s.stands(holder, other)
		stranger := s.podOf("o", "other").Kube()
		err := stranger.CoordinationV1().Leases(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if kind == fence.ConfigMap {
			err = stranger.CoreV1().ConfigMaps(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		}
		s.refused("a collection with the lock of a deny election", err, election)
	})
}

// createWeb creates a Deployment web and returns its labels.
func (s *stage) createWeb() map[string]string {
	s.t.Helper()
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	if _, err := s.admin.AppsV1().Deployments(s.namespace).Create(s.t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return labels
}

// A stranger cannot make a ConfigMap lock immutable, or create a lock with a large number of transitions.
func TestLock_ImmutableAndTransitions(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s, _, _ := guardedLock(t, kind)
		other := s.podOf("o", "other").Kube()
		if kind == fence.ConfigMap {
			s.refused("another account makes the lock immutable", s.patch(other, `{"data":{"x":"y"},"immutable":true}`), "immutable")
		}
		s.allowed("an administrator deletes the lock", s.delete(s.admin))
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		s.refused("a new lock at the maximum of transitions", s.create(other, record{transitions: 2147483647}, dry), "only the holder may release")
		s.allowed("a new lock", s.create(other, record{}, dry))
	})
}
