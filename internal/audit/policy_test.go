package audit

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/harness"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// An API server with the policy logs enough for a verdict. Other tests have logs of smaller policies.
func TestPolicy(t *testing.T) {
	const namespace = "app"
	c := cluster.Own(t, cluster.Options{WithoutControllers: true, Audit: true, AuditPolicy: Policy(namespace)})
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.Client(t).Kube().CoreV1().Namespaces().Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := map[string]kubernetes.Interface{}
	for _, pod := range []string{"a", "b"} {
		all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		pods[pod] = cluster.ClientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: pod, ServiceAccount: "app", Rules: all})).Kube()
	}
	overlap(t, pods, namespace, "object")
	text, err := os.ReadFile(c.AuditLog())
	harness.Must(t, err)
	r := examined(t, Options{}, string(text))
	if len(r.Findings) != 1 || len(r.Incomplete)+r.ByTime > 0 {
		t.Errorf("incomplete %q; %d writes by time, findings %+v", r.Incomplete, r.ByTime, r.Findings)
	}
}

// overlap lets pod a lead and write, then pod b, and then a again without the lock.
func overlap(t *testing.T, pods map[string]kubernetes.Interface, namespace, object string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		harness.Must(t, err)
	}
	write := func(pod string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"pod":%q}}}`, pod)
		_, err := pods[pod].CoreV1().ServiceAccounts(namespace).Patch(t.Context(), object, types.MergePatchType, body, metav1.PatchOptions{})
		must(err)
	}
	lock := func(pod string) *locks.LeaseLock {
		return &locks.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: object}, Client: pods[pod].CoordinationV1(),
			LockConfig: locks.ResourceLockConfig{Identity: pod},
		}
	}
	record := locks.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15, AcquireTime: metav1.Now(), RenewTime: metav1.Now()}
	must(lock("a").Create(t.Context(), record))
	created := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: object}}
	_, err := pods["a"].CoreV1().ServiceAccounts(namespace).Create(t.Context(), created, metav1.CreateOptions{})
	must(err)
	write("a")
	second := lock("b")
	_, _, err = second.Get(t.Context())
	must(err)
	record.HolderIdentity = "b"
	record.LeaderTransitions++
	must(second.Update(t.Context(), record))
	write("b")
	write("a")
}
