package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

func newAdmin(t *testing.T, c *cluster.Cluster) kube.Client {
	t.Helper()
	admin, err := kube.NewClient(c.Admin(), kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	must(t, err)
	t.Cleanup(func() { kube.CloseIdleConnections(admin) })
	return admin
}

// beside runs something until the test ends.
func beside(t *testing.T, run func(ctx context.Context)) {
	ctx, cancel := detached(t)
	var ended sync.WaitGroup
	ended.Go(func() { run(ctx) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// again runs something every now and then until ctx ends.
func again(ctx context.Context, every time.Duration, do func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// control runs the controllers of the revisions stable and canary, of which stable is the default one, or now one
// and now the other.
func control(t *testing.T, admin kube.Client, flips bool) {
	t.Helper()
	hooks := admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	tag := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: revisions.DefaultTagWebhook(""), Labels: map[string]string{"istio.io/rev": "stable", "istio.io/tag": "default"},
	}}
	if _, err := hooks.Create(t.Context(), tag, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	for _, revision := range []string{"stable", "canary"} {
		tags := revisions.NewTags(admin, revisions.Config{Revision: revision, Logger: slog.New(slog.DiscardHandler)})
		controller, err := gatewaystatus.New(admin, gatewaystatus.Config{Tags: tags, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		beside(t, func(ctx context.Context) { tags.Run(ctx.Done()) })
		beside(t, func(ctx context.Context) {
			if err := controller.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if !flips {
		return
	}
	n := 0
	t.Cleanup(func() { // after the flipping has ended
		t.Logf("the default went to and fro %d times", n)
		if n < 10 {
			t.Error("too seldom to tell anything")
		}
	})
	beside(t, func(ctx context.Context) {
		again(ctx, 100*time.Millisecond, func() {
			n++
			revision := []string{"stable", "canary"}[n%2]
			_, err := hooks.Patch(ctx, tag.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"`+revision+`"}}}`), metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
}

// play makes what each Gateway needs to be programmed, with the status that those would write who are not here.
func play(t *testing.T, admin kube.Client) {
	t.Helper()
	api, err := versioned.NewForConfig(admin.RESTConfig())
	must(t, err)
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
	_, err = admin.Kube().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	beside(t, func(ctx context.Context) {
		again(ctx, 100*time.Millisecond, func() {
			all, err := api.Gateways(pod.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			for _, g := range all.Items {
				if err := serve(ctx, admin, &g); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
					t.Errorf("playing the Deployment of %s: %v", g.Name, err)
				}
			}
		})
	})
}

// serve makes a Gateway's Deployment and Service as they would be once all is well.
func serve(ctx context.Context, admin kube.Client, g *gateway.Gateway) error {
	labels := map[string]string{gateway.GatewayNameLabelKey: g.Name}
	meta := metav1.ObjectMeta{
		Name: fmt.Sprintf("gw-%.8s-%s", g.UID, g.Spec.GatewayClassName), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: g.Name, UID: g.UID}},
	}
	deployments, services := admin.Kube().AppsV1().Deployments(g.Namespace), admin.Kube().CoreV1().Services(g.Namespace)
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, l := range g.Spec.Listeners {
		if !containsPort(service, int32(l.Port)) {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", l.Port), Port: int32(l.Port)})
		}
	}
	have, err := services.Get(ctx, meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = services.Create(ctx, service, metav1.CreateOptions{})
	}
	if err == nil && len(have.Spec.Ports) != len(service.Spec.Ports) {
		have.Spec.Ports = service.Spec.Ports
		have, err = services.Update(ctx, have, metav1.UpdateOptions{})
	}
	if err == nil && len(have.Status.LoadBalancer.Ingress) == 0 {
		have.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.0.0.9"}}
		_, err = services.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	d, err := deployments.Get(ctx, meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		d, err = deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
		}}, metav1.CreateOptions{})
	}
	if err != nil || d.Status.UpdatedReplicas > 0 {
		return err
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
	}
	_, err = deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

func containsPort(service *corev1.Service, port int32) bool {
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return true
		}
	}
	return false
}
