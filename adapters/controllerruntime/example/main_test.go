package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// operator is the example with its replicas in one namespace.
type operator struct {
	namespace, binary string
	client            kube.Client
	n                 int
}

func (o *operator) replica(t *testing.T, pod, revision string) *harness.Process {
	t.Helper()
	config := cluster.Shared(t).Identity(t, cluster.IdentityOptions{
		Namespace: o.namespace, PodName: pod,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "update"}},
		},
		ClusterRules: []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"get", "list", "watch"},
		}},
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, cluster.WriteKubeconfig(kubeconfig, config, o.namespace))
	return harness.Start(t, pod, []string{"KUBECONFIG=" + kubeconfig, "POD_NAME=" + pod, "POD_NAMESPACE=" + o.namespace, "REVISION=" + revision}, o.binary)
}

// handledBy waits until this replica leads and has reconciled a new ConfigMap.
func (o *operator) handledBy(t *testing.T, pod string) {
	t.Helper()
	harness.Until(t, pod+" leads", func() bool {
		lease, err := o.client.Kube().CoordinationV1().Leases(o.namespace).Get(t.Context(), "example", metav1.GetOptions{})
		return err == nil && *lease.Spec.HolderIdentity == pod
	})
	o.n++
	objects := o.client.Kube().CoreV1().ConfigMaps(o.namespace)
	object, err := objects.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", o.n)}, Data: map[string]string{"value": "four"},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Until(t, "the ConfigMap was handled by "+pod, func() bool {
		now, err := objects.Get(t.Context(), object.Name, metav1.GetOptions{})
		return err == nil && now.Data["length"] == "4"
	})
}

// makeDefault changes the default revision.
func (o *operator) makeDefault(t *testing.T, revision string) {
	t.Helper()
	_, err := cluster.SetRevision(t.Context(), o.client.Kube(), "istio-revision-tag-default", revision)
	harness.Must(t, err)
}

// Replicas of two revisions hand over on a rollout, a change of the default revision and a crash.
func TestExample_HandsOver(t *testing.T) {
	c := cluster.Shared(t)
	o := &operator{namespace: c.Namespace(t), binary: filepath.Join(t.TempDir(), "operator"), client: c.Client(t)}
	harness.Must(t, example.Build(t.Context(), "..", "./example", o.binary, "-trimpath", "-ldflags=-s -w"))
	o.makeDefault(t, "stable")
	first := o.replica(t, "stable-0", "stable")
	o.handledBy(t, "stable-0")

	// Rollout: the new replica follows, the old replica stops.
	o.replica(t, "stable-1", "stable")
	first.Signal(t, syscall.SIGTERM)
	if code := first.Exit(t); code != 0 {
		t.Errorf("stable-0 exited with %d", code)
	}
	o.handledBy(t, "stable-1")

	// Default change, back and forth.
	canary := o.replica(t, "canary-0", "canary")
	for range 2 {
		o.makeDefault(t, "stable")
		o.handledBy(t, "stable-1")
		o.makeDefault(t, "canary")
		o.handledBy(t, "canary-0")
	}

	// Crash: the lease expires.
	canary.Kill()
	o.handledBy(t, "stable-1")
}
