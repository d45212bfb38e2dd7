package gateway

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// workload lists the objects of each Gateway.
var workload = []gatewaydeploy.Kind{gatewaydeploy.ServiceAccount, gatewaydeploy.Service, gatewaydeploy.Deployment}

// get returns an object of home, or nil.
func (p *plane) get(kind gatewaydeploy.Kind, name string) *unstructured.Unstructured {
	p.Helper()
	o, err := p.admin.Dynamic().Resource(kind.Resource()).Namespace(p.home).Get(p.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	harness.Must(p.T, err)
	return o
}

// exist waits until objects of home exist, or do not exist.
func (p *plane) exist(want bool, name string, kinds ...gatewaydeploy.Kind) {
	p.Helper()
	for _, kind := range kinds {
		p.until(fmt.Sprintf("%s %s exists: %v", kind, name, want), func() bool { return (p.get(kind, name) != nil) == want })
	}
}

// parameters sets the ConfigMap of parametersRef.
func parameters(name string) func(*gateway.Gateway) {
	return func(g *gateway.Gateway) {
		g.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: name}}
	}
}

// configMap creates a ConfigMap.
func (p *plane) configMap(name string, labels, data map[string]string) {
	p.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: data}
	_, err := p.admin.Kube().CoreV1().ConfigMaps(p.home).Create(p.Context(), configMap, metav1.CreateOptions{})
	harness.Must(p.T, err)
}

// replicas returns the number of replicas of a Deployment.
func (p *plane) replicas(name string) int64 {
	n, _, _ := unstructured.NestedInt64(p.get(gatewaydeploy.Deployment, name).Object, "spec", "replicas")
	return n
}

// The API server rejects an apply with the UID and resourceVersion of a deleted object. The controller relies on it: its apply creates
// no object.
func TestApply_OfDeletedObject(t *testing.T) {
	p := newPlane(t)
	client := p.admin.Dynamic().Resource(gatewaydeploy.ServiceAccount.Resource()).Namespace(p.home)
	object := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "web"}}}
	}
	present, err := client.Create(t.Context(), object(), metav1.CreateOptions{})
	harness.Must(p.T, err)
	stale := object()
	stale.SetUID(present.GetUID())
	stale.SetResourceVersion(present.GetResourceVersion())
	rejected := func(when string) {
		t.Helper()
		_, err := client.Apply(t.Context(), "web", stale, metav1.ApplyOptions{FieldManager: reconcile.GatewayController, Force: true})
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", when, err)
		}
	}
	harness.Must(p.T, client.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	rejected("deleted")
	if p.get(gatewaydeploy.ServiceAccount, "web") != nil {
		t.Error("the apply created the object")
	}
	again, err := client.Create(t.Context(), object(), metav1.CreateOptions{})
	harness.Must(p.T, err)
	rejected("created again")
	if got := p.get(gatewaydeploy.ServiceAccount, "web"); got == nil || got.GetResourceVersion() != again.GetResourceVersion() {
		t.Errorf("the apply changed %+v", again)
	}
}

// Istio's autoscaler and budget are implemented, and a NetworkPolicy by the setting of the server. An unknown key is an Event and a condition.
// Fields of other clients stay, and a field or object of the controller is restored.
func TestParameters_OfIstio(t *testing.T) {
	p := newPlane(t)
	p.config.GatewayObjects = []string{"networkPolicy"}
	p.serve("a", p.identity("a"))
	p.configMap("defaults", map[string]string{gatewaydeploy.ClassDefaultsLabel: "istio"}, map[string]string{"podDisruptionBudget": "spec: {minAvailable: 1}"})
	p.configMap("sized", nil, map[string]string{
		"deployment": "spec: {replicas: 3}", "horizontalPodAutoscaler": "spec: {minReplicas: 2, maxReplicas: 5}", "typo": "a",
	})
	p.gateway(p.home, "sized", parameters("sized"))
	p.exist(true, "sized-istio", gatewaydeploy.Kinds...)
	p.condition("sized", "Accepted", "True/Accepted", `ignoring 1 unknown keys, such as "typo"`)
	p.until("an Event reports the unknown key", func() bool {
		events, err := p.admin.Kube().CoreV1().Events(p.home).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=sized,reason=UnknownParameter"})
		return err == nil && len(events.Items) == 1 && strings.Contains(events.Items[0].Message, "typo")
	})
	p.patch(gatewaydeploy.Deployment.Resource(), p.home, "sized-istio", `{"spec":{"replicas":4}}`)
	p.patch(configMaps, p.home, "sized", `{"data":{"horizontalPodAutoscaler":"spec: {minReplicas: 2, maxReplicas: 6}"}}`)
	p.until("the autoscaler is updated", func() bool {
		n, _, _ := unstructured.NestedInt64(p.get(gatewaydeploy.Autoscaler, "sized-istio").Object, "spec", "maxReplicas")
		return n == 6
	})
	if n := p.replicas("sized-istio"); n != 4 {
		t.Errorf("%d replicas", n)
	}
	p.patch(gatewaydeploy.Service.Resource(), p.home, "sized-istio", `{"metadata":{"annotations":{"other":"value"}},"spec":{"type":"NodePort"}}`)
	p.until("the Service is a LoadBalancer again", func() bool {
		kind, _, _ := unstructured.NestedString(p.get(gatewaydeploy.Service, "sized-istio").Object, "spec", "type")
		return kind == "LoadBalancer"
	})
	if got := p.get(gatewaydeploy.Service, "sized-istio").GetAnnotations()["other"]; got != "value" {
		t.Errorf("annotation of another client is %q", got)
	}
	harness.Must(p.T, p.admin.Kube().CoreV1().ServiceAccounts(p.home).Delete(t.Context(), "sized-istio", metav1.DeleteOptions{}))
	p.exist(true, "sized-istio", gatewaydeploy.ServiceAccount)
	p.patch(configMaps, p.home, "sized", `{"data":{"horizontalPodAutoscaler":null}}`)
	p.exist(false, "sized-istio", gatewaydeploy.Autoscaler)
	p.exist(true, "sized-istio", gatewaydeploy.Budget)
}
