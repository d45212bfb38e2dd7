package ctl

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// explain and doctor report why a Gateway is not programmed, and doctor reports objects of servers that a GitOps tool applies. Gateways of
// other implementations do not count.
func TestDoctor_Objects(t *testing.T) {
	e := newEnvironment(t)
	const deployment = "istio-gateway-deployment-stable"
	e.clientGo(deployment, "pilot-stable-0")
	e.istiod("istio-leader", current(record))
	e.expect(e.run("explain", deployment), Done, deployment) // the API server does not serve Gateways
	harness.Must(t, e.cluster.LoadGatewayAPI(t.Context()))
	put := func(path, name, spec string) {
		t.Helper()
		body := `{"apiVersion":"gateway.networking.k8s.io/v1","metadata":{"name":"` + name + `"},` + spec + `}`
		harness.Must(t, e.kube.Discovery().RESTClient().Post().AbsPath("/apis/gateway.networking.k8s.io/v1", path).Body([]byte(body)).Do(t.Context()).Error())
	}
	const listeners = `"listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`
	put("gatewayclasses", "istio-of-test", `"kind":"GatewayClass","spec":{"controllerName":"istio.io/gateway-controller"}`)
	put("gatewayclasses", "other-of-test", `"kind":"GatewayClass","spec":{"controllerName":"example.com/other"}`)
	gateways := "namespaces/" + e.namespace + "/gateways"
	put(gateways, "gw", `"kind":"Gateway","spec":{"gatewayClassName":"istio-of-test",`+listeners)
	put(gateways, "other", `"kind":"Gateway","spec":{"gatewayClassName":"other-of-test",`+listeners)
	const rejected = "Deployment gw-istio has too few available pods: FailedCreate: violates PodSecurity"
	status := `{"status":{"conditions":[{"type":"Programmed","status":"False","reason":"Pending","message":"` + rejected + `","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
	harness.Must(t, e.kube.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/gateway.networking.k8s.io/v1", gateways, "gw", "status").Body([]byte(status)).Do(t.Context()).Error())
	const cause = "NAMESPACE/" + deployment + ": Gateway NAMESPACE/gw is not programmed: " + rejected
	result := e.run("explain", deployment)
	e.expect(result, Done, "Warning: "+cause)
	e.expect(result, Done, "→ kubectl -n NAMESPACE describe gateways.gateway.networking.k8s.io gw")
	if other := e.run("explain", "istio-leader"); strings.Contains(result.out, "NAMESPACE/other") || strings.Contains(other.out, "not programmed") {
		t.Errorf("explain of another class or election: %s%s", result.out, other.out)
	}

	mark := []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"plane"}}}`)
	e.must(e.kube.CoordinationV1().Leases(e.namespace).Patch(t.Context(), deployment, types.MergePatchType, mark, metav1.PatchOptions{}))
	e.must(e.kube.CoreV1().ConfigMaps(e.namespace).Patch(t.Context(), "istio-leader", types.MergePatchType, mark, metav1.PatchOptions{}))
	result = e.run("doctor")
	for _, want := range []string{
		cause, "NAMESPACE/" + deployment + ": Argo CD applies Lease " + deployment + " (argocd.argoproj.io/tracking-id)", "ignore the fields /spec and /metadata/annotations",
		"Argo CD applies ConfigMap istio-leader (argocd.argoproj.io/tracking-id)", // once, also if other namespaces can have its name
		"→ kubectl -n NAMESPACE annotate lease " + deployment + " argocd.argoproj.io/tracking-id-",
	} {
		e.expect(result, unhealthy, want)
	}
}
