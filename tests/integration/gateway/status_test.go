package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
)

// read returns a condition of a Gateway.
func (p *plane) read(name, kind string) metav1.Condition {
	p.Helper()
	g, err := p.api.Gateways(p.home).Get(p.Context(), name, metav1.GetOptions{})
	harness.Must(p.T, err)
	return ptr.Deref(meta.FindStatusCondition(g.Status.Conditions, kind), metav1.Condition{})
}

// condition waits until a condition of a Gateway has a state "Status/Reason" and a message.
func (p *plane) condition(name, kind, state, message string) {
	p.Helper()
	p.until(fmt.Sprintf("%s is %s %q", kind, state, message), func() bool {
		c := p.read(name, kind)
		return string(c.Status)+"/"+c.Reason == state && strings.Contains(c.Message, message)
	})
}

// Texts of Pods, of an autoscaler and of the load balancer are passed on, with the permissions of the chart. A Pod of another owner with the
// label of the Gateway has no effect.
func TestStatus_PassesCausesOn(t *testing.T) {
	p := newPlane(t)
	p.serve("a", p.identity("a"))
	p.gateway(p.home, "gw")
	p.exist(true, "gw-istio", workload...)
	core := p.admin.Kube().CoreV1()
	shows := func(text string) {
		t.Helper()
		since := time.Now()
		p.until("the condition contains "+text, func() bool { return strings.Contains(p.read("gw", "Programmed").Message, text) })
		t.Logf("%s: after %v", text, time.Since(since).Round(time.Millisecond))
	}
	for name, set := range map[string]string{"stranger": "other-7f", "gw-istio-7f-a": "gw-istio-7f"} {
		_, err := core.Pods(p.home).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{gateway.GatewayNameLabelKey: "gw", "pod-template-hash": "7f"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "set"}},
			},
			Spec: corev1.PodSpec{ServiceAccountName: "gw-istio", Containers: []corev1.Container{{Name: "istio-proxy", Image: "auto"}}},
		}, metav1.CreateOptions{})
		harness.Must(p.T, err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	p.patch(pods, p.home, "stranger", `{"status":{"phase":"Failed","message":"of a stranger"}}`, "status")
	p.patch(pods, p.home, "gw-istio-7f-a", `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}}`, "status")
	shows("Pod gw-istio-7f-a: Unschedulable: 0/3 nodes are available")
	p.patch(pods, p.home, "gw-istio-7f-a", `{"status":{"conditions":null,"containerStatuses":[{"name":"istio-proxy","image":"auto","imageID":"","ready":false,"restartCount":0,
		"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}}`, "status")
	shows("too few available pods: Pod gw-istio-7f-a: container istio-proxy: ImagePullBackOff: no such image")
	p.patch(pods, p.home, "gw-istio-7f-a", `{"status":{"containerStatuses":null}}`, "status")
	failing, err := core.Pods(p.home).Get(t.Context(), "gw-istio-7f-a", metav1.GetOptions{})
	harness.Must(p.T, err)
	_, err = core.Events(p.home).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "mount"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "secret not found",
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.home, Name: failing.Name, UID: failing.UID},
	}, metav1.CreateOptions{})
	harness.Must(p.T, err)
	shows("too few available pods: Pod gw-istio-7f-a: FailedMount: secret not found")

	p.patch(gatewaydeploy.Deployment.Resource(), p.home, "gw-istio", `{"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}`, "status")
	service, err := core.Services(p.home).Get(t.Context(), "gw-istio", metav1.GetOptions{})
	harness.Must(p.T, err)
	_, err = core.Events(p.home).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "failed"}, Type: corev1.EventTypeWarning, Reason: "SyncLoadBalancerFailed", Message: "quota exceeded",
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: p.home, Name: service.Name, UID: service.UID},
	}, metav1.CreateOptions{})
	harness.Must(p.T, err)
	shows("no address yet: SyncLoadBalancerFailed: quota exceeded")

	p.patch(gatewaydeploy.Service.Resource(), p.home, "gw-istio", `{"status":{"loadBalancer":{"ingress":[{"ip":"127.0.0.9"}]}}}`, "status")
	p.condition("gw", "Programmed", "True/Programmed", "")
	_, err = p.admin.Kube().AutoscalingV2().HorizontalPodAutoscalers(p.home).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-istio", Labels: service.Labels, OwnerReferences: service.OwnerReferences},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "gw-istio"}},
	}, metav1.CreateOptions{})
	harness.Must(p.T, err)
	p.patch(gatewaydeploy.Autoscaler.Resource(), p.home, "gw-istio", `{"status":{"conditions":[{"type":"ScalingActive","status":"False","reason":"FailedGetResourceMetric","message":"no metrics"}]}}`, "status")
	shows("HorizontalPodAutoscaler gw-istio: FailedGetResourceMetric: no metrics")
	p.condition("gw", "Programmed", "True/Programmed", "")
}
