package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

// flipEvery is long enough to replace the Pods of a Gateway, which depend on the default revision.
const flipEvery = time.Second

// serve runs a server of a revision with the permissions of the chart.
func serve(t *testing.T, c *cluster.Cluster, home, revision, bundle string) {
	t.Helper()
	config := bootstrap.Config{
		Config: leaderelection.Config{
			Namespace: home, Identity: "pilot-" + revision, Revision: revision,
			LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		},
		Address: "127.0.0.1:0", CABundle: bundle, IngressMode: "OFF", QPS: -1,
	}
	config.RESTConfig = servers.Identity(t, c, config, config.Identity, "")
	servers.Run(t, config)
}

// control runs servers of the revisions stable and canary. The default revision is stable or, with flips,
// alternates.
func control(t *testing.T, c *cluster.Cluster, admin kube.Client, flips bool) {
	t.Helper()
	home := c.Namespace(t)
	hooks := admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	tag := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: tagging.DefaultTagWebhook(""), Labels: map[string]string{"istio.io/rev": "stable", "istio.io/tag": "default"},
	}}
	if _, err := hooks.Create(t.Context(), tag, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	bundle := filepath.Join(t.TempDir(), "no-bundle")
	must(t, os.WriteFile(bundle, nil, 0o600))
	for _, revision := range []string{"stable", "canary"} {
		serve(t, c, home, revision, bundle)
	}
	if !flips {
		return
	}
	n := 0
	t.Cleanup(func() { // after the last flip
		t.Logf("the default revision changed %d times", n)
		if n < 3 {
			t.Error("too few changes")
		}
	})
	harness.Background(t, func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			revision := []string{"canary", "stable"}[n%2]
			_, err := hooks.Patch(ctx, tag.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"`+revision+`"}}}`), metav1.PatchOptions{})
			if err != nil {
				t.Logf("retrying: %v", err)
				return
			}
			n++
		}, flipEvery)
		return nil
	})
}

// simulateNodes makes Pods ready and assigns addresses to Services. It also creates a Pod, which the suite
// expects in its namespace.
func simulateNodes(t *testing.T, admin kube.Client) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ready", Namespace: suite.InfrastructureNamespace},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: pod.Namespace}}
	if _, err := admin.Kube().CoreV1().ServiceAccounts(pod.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	if _, err := admin.Kube().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	harness.Background(t, func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := errors.Join(readyPods(ctx, admin, pod.Namespace), addressServices(ctx, admin, pod.Namespace)); err != nil {
				t.Logf("retrying: %v", err)
			}
		}, 100*time.Millisecond)
		return nil
	})
}

// readyPods makes all Pods ready.
func readyPods(ctx context.Context, admin kube.Client, namespace string) error {
	pods, err := admin.Kube().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			continue
		}
		_, err := admin.Kube().CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("update status of Pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// addressServices assigns the requested address or a default address to Services.
func addressServices(ctx context.Context, admin kube.Client, namespace string) error {
	services, err := admin.Kube().CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, service := range services.Items {
		address := cmp.Or(service.Spec.LoadBalancerIP, "127.0.0.9")
		if in := service.Status.LoadBalancer.Ingress; service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(in) == 1 && in[0].IP == address {
			continue
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		_, err := admin.Kube().CoreV1().Services(namespace).UpdateStatus(ctx, &service, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("update status of Service %s: %w", service.Name, err)
		}
	}
	return nil
}
