package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// An API server with exactly the policy logs enough for a verdict. Each smaller policy is reported.
func TestPolicy(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	namespace := c.Namespace(t)
	pods := map[string]kubernetes.Interface{}
	for _, pod := range []string{"a", "b"} {
		all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		pods[pod] = cluster.ClientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: pod, ServiceAccount: "app", Rules: all})).Kube()
	}
	replaced := func(old, smaller string) string { return strings.ReplaceAll(Policy(namespace), old, smaller) }
	candidates := strings.Index(Policy(namespace), "# The writes of the candidates")
	for name, test := range map[string]struct {
		policy, want string
		findings     int
		approximate  bool
	}{
		"exact":          {Policy(namespace), "", 1, false},
		"level Request":  {replaced("RequestResponse", "Request"), "", 1, true},
		"level Metadata": {replaced("RequestResponse", "Metadata"), "the level of the log is too low: 2 writes of Leases, ConfigMaps or Endpoints have no body", 0, false},
		"locks only":     {Policy(namespace)[:candidates], "the log has locks, but no other write of their candidates", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := logged(t, c, test.policy, func(object string) { overlap(t, pods, namespace, object) })
			if got := strings.Join(r.Incomplete, "; "); len(r.Findings) != test.findings || (r.ByTime > 0) != test.approximate ||
				(got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("incomplete %q, want %q; %d writes by time, findings %+v", got, test.want, r.ByTime, r.Findings)
			}
		})
	}
}

// logged restarts the API server with a policy, and judges its log.
func logged(t *testing.T, c *cluster.Cluster, policy string, do func(object string)) Report {
	t.Helper()
	folder := t.TempDir()
	file, log := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	c.APIServer().SetArgs("--audit-policy-file="+file, "--audit-log-path="+log, "--audit-log-mode=blocking")
	if err := c.APIServer().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.APIServer().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(fmt.Sprint("object-", time.Now().UnixNano()))
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return examined(t, Options{}, string(text))
}

// overlap lets pod a lead and write, then pod b, and then a again without the lock.
func overlap(t *testing.T, pods map[string]kubernetes.Interface, namespace, object string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
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
