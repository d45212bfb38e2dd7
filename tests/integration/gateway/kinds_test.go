package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
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
	resource := func(kind string) dynamic.ResourceInterface {
		return c.admin.Dynamic().Resource(gatewayAPI(strings.ToLower(kind) + "s")).Namespace(c.home)
	}
	for kind := range kinds {
		c.until(kind+" has its entry", func() bool {
			o, err := resource(kind).Get(t.Context(), "route", metav1.GetOptions{})
			return err == nil && strings.Contains(fmt.Sprint(o.Object["status"]), "BackendNotFound")
		})
	}
	c.removeDefinitions("tcproutes")
	await("http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp UnsupportedProtocol  0, udp Accepted UDP 1")
	c.must(resource("UDPRoute").Delete(t.Context(), "route", metav1.DeleteOptions{}))
	await("http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp UnsupportedProtocol  0, udp Accepted UDP 0")
	c.must(c.cluster.LoadGatewayAPI(t.Context()))
	route("TCPRoute")
	route("UDPRoute")
	await(complete)
	if gone, back := c.log.Count("tcproutes", "is not served"), c.log.Count("tcproutes", "is served now"); gone != 1 || back != 1 {
		t.Errorf("logged %d and %d times about the kind:\n%s", gone, back, c.log)
	}
}

// The largest inputs that the API server admits get a status, and others are still reconciled.
func TestStatus_LargeInputs(t *testing.T) {
	c := newCell(t)
	c.start()
	var listeners, parents []string
	for i := range 64 {
		listeners = append(listeners, fmt.Sprintf(`{"name":"l%d","port":80,"protocol":"HTTP","hostname":"h%d.xn--bcher-kva.example"}`, i, i))
	}
	for i := range 32 {
		parents = append(parents, fmt.Sprintf(`{"name":"gw","sectionName":"l%d"}`, i))
	}
	c.put("Gateway", "gw", `{"gatewayClassName":"istio","listeners":[`+strings.Join(listeners, ",")+`]}`)
	c.put("HTTPRoute", "wide", `{"parentRefs":[`+strings.Join(parents, ",")+`]}`)
	const routes = 500
	for i := range routes {
		c.put("GRPCRoute", fmt.Sprint("route-", i), `{"parentRefs":[{"name":"gw","sectionName":"l63"}]}`)
	}
	c.until("all entries of the route with 32 parents", func() bool {
		all := c.route("wide").Status.Parents
		return len(all) == 32 && !slices.ContainsFunc(all, func(p gateway.RouteParentStatus) bool { return len(p.Conditions) != 2 })
	})
	c.until("all routes attached", func() bool {
		all := c.read("gw").Status.Listeners
		return len(all) == 64 && all[0].AttachedRoutes == 1 && all[63].AttachedRoutes == routes
	})
	c.put("Gateway", "small", listening)
	c.condition(c.ofGateway("small"), "Accepted", "True/Accepted", "")
	if err := c.create(c.home, "HTTPRoute", "unicode", `{"hostnames":["bücher.example"]}`); !apierrors.IsInvalid(err) {
		t.Errorf("a host name that is not ASCII: %v", err)
	}
}
