package example

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// On a real API server, the Pod of the leader is the only one with the label. A restarted container removes the label that it
// left. The lock has its labels and its owner.
func TestLabelPod_APIServer(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace, admin := c.Namespace(t), c.Client(t).Kube()
	owner, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var log harness.Log
	clients := map[string]kube.Client{}
	for _, pod := range []string{"a", "b"} {
		if clients[pod], err = kube.NewClient(c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: pod, ServiceAccount: "labelled", Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
		}})); err != nil {
			t.Fatal(err)
		}
		defer kube.CloseIdleConnections(clients[pod])
	}
	run := func(pod string) (_ *leaderelection.LeaderElection, stop func()) {
		election, err := leaderelection.New(clients[pod], leaderelection.Config{
			Namespace: namespace, ElectionID: "labelled", Identity: pod, LabelPod: types.NamespacedName{Namespace: namespace, Name: pod},
			LockLabels: map[string]string{"app": "x"},
			LockOwners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
			Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- election.RunContext(ctx) }()
		return election, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	labelled := func(want string) {
		t.Helper()
		harness.Until(t, "the label is on "+want, func() bool {
			pods, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: leaderelection.LeaderLabel + "=labelled"})
			var names []string
			for _, pod := range pods.Items {
				names = append(names, pod.Name)
			}
			return err == nil && strings.Join(names, " ") == want
		})
	}
	_, stopA := run("a")
	labelled("a")
	lease, err := admin.CoordinationV1().Leases(namespace).Get(t.Context(), "labelled", metav1.GetOptions{})
	if err != nil || lease.Labels["app"] != "x" || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != owner.UID {
		t.Errorf("lock %+v, error %v", lease, err)
	}
	b, stopB := run("b")
	stopA()
	labelled("b")
	// As if a had been killed while it led.
	patch := []byte(`{"metadata":{"labels":{"incumbent.dev/leader":"labelled"}}}`)
	if _, err := admin.CoreV1().Pods(namespace).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	labelled("a b")
	_, stopA = run("a")
	labelled("b")
	if admitted := b.Gate().Admitted(); !b.IsLeader() || admitted != 1 {
		t.Errorf("b leads: %v; the gate admitted %d writes, want the label", b.IsLeader(), admitted)
	}
	stopB()
	labelled("a")
	stopA()
	labelled("")
	// A stop can cut a write of the label that this test has seen already.
	if log.Count("level=WARN") != log.Count("level=WARN", "the outcome of the write is unknown") {
		t.Error(log.String())
	}
}
