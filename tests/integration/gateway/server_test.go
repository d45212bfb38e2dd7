package gateway

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Without the Gateway API, its two elections wait. If its definitions are removed while the server leads, the
// server creates nothing and continues after their return. Other elections are not affected.
func TestServer_DefinitionsMissing(t *testing.T) {
	p := newPlane(t)
	p.removeDefinitions(gatewayKinds...)
	r := p.serve("a", p.identity("a"))
	const waits, gone = "waiting for missing CustomResourceDefinitions", "resource kind is not served by the API server; waiting for its CustomResourceDefinition"
	const absent = "resource kind is not served by the API server; its objects count as missing"
	p.until("both elections wait", func() bool { return r.Log.Count(waits) == 2 })
	p.othersWork()
	if n := len(p.leading(r)); n != 1 {
		t.Errorf("it leads %q", p.leading(r))
	}
	harness.Must(p.T, p.cluster.LoadGatewayAPI(t.Context()))
	p.gateway(p.home, "first")
	p.served(p.home, "first")
	if n := r.Log.Count(waits); n != 2 {
		t.Errorf("waiting is logged %d times", n)
	}

	p.removeDefinitions(gatewayKinds...)
	p.until("all missing kinds are logged", func() bool { return r.Log.Count(gone) == 5 && r.Log.Count(absent, "kind=httproutes") == 1 })
	made := r.Sent.Count("POST", "/deployments")
	harness.Must(p.T, p.admin.Kube().AppsV1().Deployments(p.home).Delete(t.Context(), "first-istio", metav1.DeleteOptions{}))
	p.othersWork()
	if all := p.leading(r); len(all) != 3 {
		t.Errorf("it leads %q", all)
	}
	if n := r.Sent.Count("POST", "/deployments") - made; n > 0 || p.deployed(p.home, "first") {
		t.Errorf("%d Deployments created for deleted Gateways", n)
	}
	if n, m := r.Log.Count(gone), r.Log.Count(absent, "kind=httproutes"); n != 5 || m != 1 {
		t.Errorf("missing kinds are logged %d times, missing routes %d times", n, m)
	}

	harness.Must(p.T, p.cluster.LoadGatewayAPI(t.Context()))
	p.gateway(p.home, "second")
	p.served(p.home, "second")
	if n := r.Log.Count("run function started"); n != 3 {
		t.Errorf("%d terms, want 3", n)
	}
}
