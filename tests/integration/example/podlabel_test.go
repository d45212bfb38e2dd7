package example

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// On a real API server, the Pod of the leader has the label until the leader stops, and the lock has its labels and its owner. These
// permissions are sufficient.
func TestLabelPod_APIServer(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace, admin := c.Namespace(t), c.Client(t).Kube()
	owner, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	client := cluster.ClientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a", ServiceAccount: "labelled", Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
	}}))
	var log harness.Log
	election, err := leaderelection.New(client, leaderelection.Config{
		Namespace: namespace, ElectionID: "labelled", Identity: "a", LabelPod: types.NamespacedName{Namespace: namespace, Name: "a"},
		LockLabels: map[string]string{"app": "x"},
		LockOwners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
		Logger:     slog.New(slog.NewTextHandler(&log, nil)),
	})
	harness.Must(t, err)
	stop := harness.Background(t, election.RunContext)
	labelled := func(want int) {
		t.Helper()
		harness.Until(t, "the label of the leader", func() bool {
			pods, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: leaderelection.LeaderLabel + "=labelled"})
			return err == nil && len(pods.Items) == want
		})
	}
	labelled(1)
	lease, err := admin.CoordinationV1().Leases(namespace).Get(t.Context(), "labelled", metav1.GetOptions{})
	if err != nil || lease.Labels["app"] != "x" || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != owner.UID {
		t.Errorf("lock %+v, error %v", lease, err)
	}
	if election.Gate().Admitted() == 0 {
		t.Error("the label was not written through the gate")
	}
	stop()
	labelled(0)
	// The first request removes the label of an earlier process. It is rejected, because there is no label.
	if log.Count("forbidden")+log.Count("rejected our request") > 0 {
		t.Errorf("the API server refused requests:\n%s", log.String())
	}
}
