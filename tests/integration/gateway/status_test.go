package gateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	listening = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`
	routing   = `{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"backend","port":8080}]}]}`
)

func (c *cell) backend(name string) {
	c.Helper()
	_, err := c.admin.Kube().CoreV1().Services(c.home).Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	harness.Must(c.T, err)
}

// The status follows the cluster until the Gateway is served. Without changes nothing is written.
func TestStatus_FollowsCluster(t *testing.T) {
	c := newCell(t)
	c.start()
	c.condition(func() []metav1.Condition { // no revision is the default
		class, err := c.api.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		if err != nil || class.Spec.ControllerName != reconcile.GatewayController {
			return nil
		}
		return class.Status.Conditions
	}, "Accepted", "True/Accepted", "")
	c.put("Gateway", "gw", listening)
	c.put("HTTPRoute", "route", routing)
	c.condition(c.ofGateway("gw"), "Accepted", "True/Accepted", "")
	c.condition(c.ofGateway("gw"), "Programmed", "False/Pending", "")
	c.condition(c.ofRoute("route", "gw"), "Accepted", "True/Accepted", "")
	c.condition(c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound", "")
	c.backend("backend")
	c.condition(c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs", "")

	c.deploy("gw-istio")
	c.patch(gatewaydeploy.Deployment.Resource(), c.home, "gw-istio", fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":1,"updatedReplicas":1,
		"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}`, c.get(gatewaydeploy.Deployment, "gw-istio").GetGeneration()), "status")
	c.condition(c.ofGateway("gw"), "Programmed", "False/AddressNotAssigned", "")
	c.patch(gatewaydeploy.Service.Resource(), c.home, "gw-istio", `{"status":{"loadBalancer":{"ingress":[{"ip":"127.0.0.9"},{"ip":"127.0.0.8"}]}}}`, "status")
	c.condition(c.ofGateway("gw"), "Programmed", "True/Programmed", "")
	c.condition(func() []metav1.Condition { return c.read("gw").Status.Listeners[0].Conditions }, "Programmed", "True/Programmed", "")
	g := c.read("gw")
	if len(g.Status.Addresses) != 2 || g.Status.Addresses[0].Value != "127.0.0.9" || g.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("addresses are %v, listeners %v", g.Status.Addresses, g.Status.Listeners)
	}

	// After a new generation, unchanged conditions keep their times.
	c.patch(gatewaysResource, c.home, "gw", `{"spec":{"infrastructure":{"labels":{"a":"b"}}}}`)
	c.until("the generation is observed", func() bool {
		now := c.read("gw")
		for i, one := range now.Status.Conditions {
			if one.ObservedGeneration != now.Generation {
				return false
			}
			if !one.LastTransitionTime.Equal(&g.Status.Conditions[i].LastTransitionTime) {
				t.Fatalf("the time of %s has moved", one.Type)
			}
		}
		return now.Generation != g.Generation
	})
	c.quiet()
}

// Texts of Pods, of an autoscaler and of the load balancer are passed on, with the permissions of the chart. A Pod of another owner with the
// label of the Gateway has no effect.
func TestStatus_PassesCausesOn(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.deploy("gw-istio")
	core := c.admin.Kube().CoreV1()
	shows := func(text string) {
		t.Helper()
		since := time.Now()
		c.until("the condition contains "+text, func() bool {
			programmed := apimeta.FindStatusCondition(c.read("gw").Status.Conditions, "Programmed")
			return programmed != nil && strings.Contains(programmed.Message, text)
		})
		t.Logf("%s: after %v", text, time.Since(since).Round(time.Millisecond))
	}
	for name, set := range map[string]string{"stranger": "other-7f", "gw-istio-7f-a": "gw-istio-7f"} {
		_, err := core.Pods(c.home).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{gateway.GatewayNameLabelKey: "gw", "pod-template-hash": "7f"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "set"}},
			},
			Spec: corev1.PodSpec{ServiceAccountName: "gw-istio", Containers: []corev1.Container{{Name: "istio-proxy", Image: "auto"}}},
		}, metav1.CreateOptions{})
		harness.Must(c.T, err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	c.patch(pods, c.home, "stranger", `{"status":{"phase":"Failed","message":"of a stranger"}}`, "status")
	c.patch(pods, c.home, "gw-istio-7f-a", `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}}`, "status")
	shows("Pod gw-istio-7f-a: Unschedulable: 0/3 nodes are available")
	c.patch(pods, c.home, "gw-istio-7f-a", `{"status":{"conditions":null,"containerStatuses":[{"name":"istio-proxy","image":"auto","imageID":"","ready":false,"restartCount":0,
		"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}}`, "status")
	shows("too few available pods: Pod gw-istio-7f-a: container istio-proxy: ImagePullBackOff: no such image")
	c.patch(pods, c.home, "gw-istio-7f-a", `{"status":{"containerStatuses":null}}`, "status")
	failing, err := core.Pods(c.home).Get(t.Context(), "gw-istio-7f-a", metav1.GetOptions{})
	harness.Must(c.T, err)
	_, err = core.Events(c.home).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "mount"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "secret not found",
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.home, Name: failing.Name, UID: failing.UID},
	}, metav1.CreateOptions{})
	harness.Must(c.T, err)
	shows("too few available pods: Pod gw-istio-7f-a: FailedMount: secret not found")

	c.patch(gatewaydeploy.Deployment.Resource(), c.home, "gw-istio", `{"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}`, "status")
	service, err := core.Services(c.home).Get(t.Context(), "gw-istio", metav1.GetOptions{})
	harness.Must(c.T, err)
	_, err = core.Events(c.home).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "failed"}, Type: corev1.EventTypeWarning, Reason: "SyncLoadBalancerFailed", Message: "quota exceeded",
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: c.home, Name: service.Name, UID: service.UID},
	}, metav1.CreateOptions{})
	harness.Must(c.T, err)
	shows("no address yet: SyncLoadBalancerFailed: quota exceeded")

	c.patch(gatewaydeploy.Service.Resource(), c.home, "gw-istio", `{"status":{"loadBalancer":{"ingress":[{"ip":"127.0.0.9"}]}}}`, "status")
	c.condition(c.ofGateway("gw"), "Programmed", "True/Programmed", "")
	_, err = c.admin.Kube().AutoscalingV2().HorizontalPodAutoscalers(c.home).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-istio", Labels: service.Labels, OwnerReferences: service.OwnerReferences},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "gw-istio"}},
	}, metav1.CreateOptions{})
	harness.Must(c.T, err)
	c.patch(gatewaydeploy.Autoscaler.Resource(), c.home, "gw-istio", `{"status":{"conditions":[{"type":"ScalingActive","status":"False","reason":"FailedGetResourceMetric","message":"no metrics"}]}}`, "status")
	shows("HorizontalPodAutoscaler gw-istio: FailedGetResourceMetric: no metrics")
	c.condition(c.ofGateway("gw"), "Programmed", "True/Programmed", "")
}

// deploy runs a deployment controller without an election until it has created the objects of a name.
func (c *cell) deploy(name string) {
	c.Helper()
	d, err := gatewaydeploy.New(c.admin, gatewaydeploy.Config{
		Namespace: c.home, Revision: c.home, IsMine: func(meta metav1.ObjectMeta) bool { return meta.Namespace == c.home },
		Logger: slog.New(slog.DiscardHandler),
	})
	harness.Must(c.T, err)
	stop := harness.Background(c.T, d.Run)
	c.exist(true, name, workload...)
	stop()
}

// quiet checks that a restart and irrelevant changes cause no writes. All writes of a controller that has ended are recorded.
func (c *cell) quiet() {
	c.Helper()
	writes := func() int {
		c.end()
		return c.sent.Count("PATCH", "/gw/") + c.sent.Count("PATCH", "/route/")
	}
	before := writes()
	c.start()
	c.patch(gatewaysResource, c.home, "gw", `{"metadata":{"annotations":{"a":"b"}}}`)
	c.patch(namespaces, "", c.home, `{"metadata":{"labels":{"a":"b"}}}`)
	c.put("Gateway", "last", listening)
	c.condition(c.ofGateway("last"), "Accepted", "True/Accepted", "")
	if n := writes(); n != before {
		c.Errorf("%d unnecessary writes:\n%s", n-before, c.sent)
	}
}
