package fencing_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestGate_ControllerRuntimeClient(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a", Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "pods", "pods/status"}, Verbs: []string{"*"}},
	}})
	own, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		t.Fatal(err)
	}
	defer kube.CloseIdleConnections(own)
	le, err := leaderelection.New(own, leaderelection.Config{
		Namespace: namespace, Identity: "a", ElectionID: "gate", Lock: leaderelection.LockTypeLease, Revision: "default",
	})
	if err != nil {
		t.Fatal(err)
	}
	gated, err := client.New(le.Client().RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace}}
	writes := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"create", func(ctx context.Context) error { return gated.Create(ctx, configMap("x")) }},
		{"apply", func(ctx context.Context) error {
			return gated.Apply(ctx, applycorev1.ConfigMap("y", namespace), client.FieldOwner("example"))
		}},
		{"status", func(ctx context.Context) error {
			return gated.Status().Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"message":"m"}}`)))
		}},
		{"delete all", func(ctx context.Context) error {
			return gated.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))
		}},
	}
	refused := func(when string) {
		for _, w := range writes {
			var details *fence.NotLeaderError
			if err := w.do(t.Context()); !errors.Is(err, fence.ErrNotLeader) || !errors.As(err, &details) || details.Election != "gate" {
				t.Errorf("%s %s: %v", w.what, when, err)
			}
		}
	}
	refused("before the first term")
	if err := gated.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, pod); err != nil {
		t.Errorf("a read: %v", err)
	}
	done := make(chan error, 1)
	led := make(chan struct{})
	le.AddRunContext(func(ctx context.Context) error {
		for _, w := range writes {
			if err := w.do(ctx); err != nil {
				t.Errorf("%s by the leader: %v", w.what, err)
			}
		}
		close(led)
		<-ctx.Done()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- le.RunContext(ctx) }()
	<-led
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	refused("after the term")
}
