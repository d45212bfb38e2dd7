package example

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

const (
	root = "../../.."
	// patience bounds every wait; tests need much less time.
	patience = 2 * time.Minute
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
		leads(t, name, n, snapshot)
		process, err := n.Pod(home, name)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--kubeconfig", c.Kubeconfig(), "--namespace", home, "delete", "pod", name, "--timeout", patience.String()}
		if said, err := exec.CommandContext(t.Context(), c.Kubectl(), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl delete pod: %v\n%s", err, said)
		}
		now := snapshot()
		if now.Unreadable != nil || now.Record.HolderIdentity != "" || now.Record.LeaseDurationSeconds != 1 || now.Record.LeaderTransitions != transitions {
			said, err := os.ReadFile(process.Log)
			t.Errorf("after Pod %s was deleted the record is %+v; its log (%v):\n%s", name, now.Record, err, said)
		}
		if len(now.Annotations) != 0 {
			t.Errorf("still on the lock: %v", now.Annotations)
		}
	}
}

// leads waits until a Pod holds the lock and its run function has logged that.
func leads(t *testing.T, name string, n *node.Node, snapshot func() k8sresourcelock.Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var said []byte
		if process, err := n.Pod(home, name); err == nil {
			said, _ = os.ReadFile(process.Log)
		}
		if strings.Contains(string(said), " leading") && snapshot().Record.HolderIdentity == name {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Pod %s does not lead within %v; the record is %+v; its log:\n%s", name, patience, snapshot().Record, said)
		case <-ticker.C:
		}
	}
}
