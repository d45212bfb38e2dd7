package example

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

const (
	root = "../../.."
	// home and election are the names in the example.
	home     = "default"
	election = "my-controller"
)

// A Pod of the example leads. kubectl delete pod stops it by SIGTERM. When the Pod is deleted, the lock is
// released, and the next Pod does not wait for the lease.
func TestExample_ReleasesLock(t *testing.T) {
	c := cluster.Shared(t)
	admin := c.Client(t).Kube()
	folder := t.TempDir()
	file, err := example.Write(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(folder, "example")
	if err := example.Build(t.Context(), root, file, binary, "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	// The Pod "none" does not run. The call creates the service account with the permissions of a candidate.
	c.Identity(t, cluster.IdentityOptions{Namespace: home, PodName: "none", ServiceAccount: election, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update", "watch"}, ResourceNames: []string{election}},
	}})
	n := node.Start(t, node.Options{Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"example": binary}})
	snapshot := func() k8sresourcelock.Snapshot {
		lease, err := admin.CoordinationV1().Leases(home).Get(t.Context(), election, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if err != nil {
			return k8sresourcelock.Snapshot{}
		}
		return k8sresourcelock.LeaseSnapshot(lease)
	}
	for transitions, name := range []string{"one", "two"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			ServiceAccountName: election,
			Containers:         []corev1.Container{{Name: "example", Image: "example"}},
		}}
		if _, err := admin.CoreV1().Pods(home).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		file := ""
		log := func() string {
			if process, err := n.Pod(home, name); err == nil {
				file = process.Log
			}
			text, _ := os.ReadFile(file) // none until the Pod runs
			return string(text)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("Pod %s logged:\n%s", name, log())
			}
		})
		harness.Until(t, "Pod "+name+" leads", func() bool { return strings.Contains(log(), " leading") && snapshot().Record.HolderIdentity == name })
		args := []string{"--kubeconfig", c.Kubeconfig(), "--namespace", home, "delete", "pod", name, "--timeout", harness.Patience.String()}
		if said, err := exec.CommandContext(t.Context(), c.Kubectl(), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl delete pod: %v\n%s", err, said)
		}
		now := snapshot()
		if now.Unreadable != nil || now.Record.HolderIdentity != "" || now.Record.LeaseDurationSeconds != 1 || now.Record.LeaderTransitions != transitions {
			t.Errorf("after Pod %s was deleted the record is %+v", name, now.Record)
		}
		if len(now.Annotations) != 0 {
			t.Errorf("still on the lock: %v", now.Annotations)
		}
	}
}
