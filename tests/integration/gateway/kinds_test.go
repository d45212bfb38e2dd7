package gateway

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const everyProtocol = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"},
	{"name":"tls","port":443,"protocol":"TLS","tls":{"mode":"Passthrough"}},{"name":"tcp","port":81,"protocol":"TCP"},{"name":"udp","port":81,"protocol":"UDP"}]}`

// listeners returns the reason of Accepted, the kinds and the number of routes of each listener.
func (c *cell) listeners(name string) string {
	var all []string
	for _, l := range c.read(name).Status.Listeners {
		var kinds []string
		for _, kind := range l.SupportedKinds {
			kinds = append(kinds, strings.TrimSuffix(string(kind.Kind), "Route"))
		}
		accepted := ptr.Deref(meta.FindStatusCondition(l.Conditions, string(gateway.ListenerConditionAccepted)), metav1.Condition{})
		all = append(all, fmt.Sprintf("%s %s %s %d", l.Name, accepted.Reason, strings.Join(kinds, "+"), l.AttachedRoutes))
	}
	return strings.Join(all, ", ")
}

// Routes of all kinds are served. A kind can disappear and appear again while the controller runs.
func TestStatus_RouteKinds(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", everyProtocol)
	kinds := map[string]string{"GRPCRoute": "", "HTTPRoute": "", "TCPRoute": "", "TLSRoute": `"hostnames":["a.example"],`, "UDPRoute": ""}
	route := func(kind string) {
		t.Helper()
		c.put(kind, "route", `{`+kinds[kind]+`"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"backend","port":8080}]}]}`)
	}
	for kind := range kinds {
		route(kind)
	}
	const complete = "http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp Accepted TCP 1, udp Accepted UDP 1"
	got := ""
	await := func(want string) {
		t.Helper()
		c.until(want, func() bool { got = c.listeners("gw"); return got == want })
	}
	defer func() { t.Logf("listeners: %s", got) }()
	await(complete)
	for kind := range kinds {
		c.until(kind+" has its entry", func() bool {
			o, err := c.admin.Dynamic().Resource(gatewayAPI(strings.ToLower(kind)+"s")).Namespace(c.home).Get(t.Context(), "route", metav1.GetOptions{})
			return err == nil && strings.Contains(fmt.Sprint(o.Object["status"]), "BackendNotFound")
		})
	}
	c.removeDefinitions("tcproutes")
	await("http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp UnsupportedProtocol  0, udp Accepted UDP 1")
	harness.Must(c.T, c.cluster.LoadGatewayAPI(t.Context()))
	route("TCPRoute")
	await(complete)
	if gone, back := c.log.Count("tcproutes", "is not served"), c.log.Count("tcproutes", "is served now"); gone != 1 || back != 1 {
		t.Errorf("logged %d and %d times about the kind:\n%s", gone, back, c.log)
	}
}
