package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

// An operator of controller-runtime with the diff of docs/migration-controller-runtime.md reconciles, and releases its lock.
func TestMigration_FromManager(t *testing.T) {
	const module = ".."
	before, err := os.ReadFile("testdata/before.go")
	harness.Must(t, err)
	hunks, err := example.Diff("../../../docs/migration-controller-runtime.md")
	harness.Must(t, err)
	after, err := example.Apply(string(before), hunks)
	harness.Must(t, err)
	folder := t.TempDir()
	file, binary := filepath.Join(folder, "main.go"), filepath.Join(folder, "operator")
	harness.Must(t, os.WriteFile(file, []byte(after), 0o600))
	for _, source := range []string{"example/testdata/before.go", file} {
		harness.Must(t, example.Build(t.Context(), module, source, binary, "-trimpath", "-ldflags=-s -w"))
	}
	c := cluster.Shared(t)
	namespace, client := c.Namespace(t), c.Client(t).Kube()
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "operator-0", Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch", "update"}},
	}})
	kubeconfig := filepath.Join(folder, "kubeconfig")
	harness.Must(t, cluster.WriteKubeconfig(kubeconfig, config, namespace))
	labels := map[string]string{"app": "x"}
	deployments := client.AppsV1().Deployments(namespace)
	if _, err := deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	operator := harness.Start(t, "operator-0", []string{"KUBECONFIG=" + kubeconfig, "POD_NAME=operator-0", "POD_NAMESPACE=" + namespace}, binary)
	harness.Until(t, "the operator reconciles", func() bool {
		now, err := deployments.Get(t.Context(), "x", metav1.GetOptions{})
		return err == nil && now.Annotations["seen-by"] == "operator-0"
	})
	operator.Signal(t, syscall.SIGTERM)
	if code := operator.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), "my-operator", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lock was not released: %v, error %v", lease.Spec, err)
	}
}
