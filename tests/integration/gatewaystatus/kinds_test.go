package gatewaystatus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

const everyProtocol = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"},
	{"name":"tls","port":443,"protocol":"TLS","tls":{"mode":"Passthrough"}},{"name":"tcp","port":81,"protocol":"TCP"},{"name":"udp","port":81,"protocol":"UDP"}]}`

// listeners returns the reason of Accepted, the kinds and the number of routes of each listener.
func (c *cell) listeners(name string) string {
	var all []string
	for _, l := range c.gateway(name).Status.Listeners {
		var kinds []string
		for _, kind := range l.SupportedKinds {
			kinds = append(kinds, strings.TrimSuffix(string(kind.Kind), "Route"))
		}
		reason := ""
		for _, condition := range l.Conditions {
			if condition.Type == string(gateway.ListenerConditionAccepted) {
				reason = condition.Reason
			}
		}
		all = append(all, fmt.Sprintf("%s %s %s %d", l.Name, reason, strings.Join(kinds, "+"), l.AttachedRoutes))
	}
	return strings.Join(all, ", ")
}

// Routes of all kinds are served. A kind can disappear and appear again while the controller runs.
func TestStatus_RouteKinds(t *testing.T) {
	c := newCell(t)
	admin, err := dynamic.NewForConfig(c.admin.RESTConfig())
	c.must(err)
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
		c.await(want, func() bool { got = c.listeners("gw"); return got == want })
	}
	defer func() { t.Logf("listeners: %s", got) }()
	await(complete)
	resource := func(kind string) dynamic.ResourceInterface {
		return admin.Resource(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: strings.ToLower(kind) + "s"}).Namespace(c.namespace)
	}
	for kind := range kinds {
		c.await(kind+" has its entry", func() bool {
			o, err := resource(kind).Get(t.Context(), "route", metav1.GetOptions{})
			return err == nil && strings.Contains(fmt.Sprint(o.Object["status"]), "BackendNotFound")
		})
	}
	c.removeDefinition(admin, "tcproutes.gateway.networking.k8s.io")
	await("http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp UnsupportedProtocol  0, udp Accepted UDP 1")
	c.must(resource("UDPRoute").Delete(t.Context(), "route", metav1.DeleteOptions{}))
	await("http Accepted GRPC+HTTP 2, tls Accepted TLS 1, tcp UnsupportedProtocol  0, udp Accepted UDP 0")
	c.must(c.c.LoadGatewayAPI(t.Context()))
	route("TCPRoute")
	route("UDPRoute")
	await(complete)
	if gone, back := c.log.Count("tcproutes", "is not served"), c.log.Count("tcproutes", "is served now"); gone != 1 || back != 1 {
		t.Errorf("logged %d and %d times about the kind:\n%s", gone, back, c.log)
	}
}

// removeDefinition deletes a CustomResourceDefinition until the test ends, and waits until it does not exist.
func (c *cell) removeDefinition(admin dynamic.Interface, name string) {
	c.t.Helper()
	c.t.Cleanup(func() { c.must(c.c.LoadGatewayAPI(context.WithoutCancel(c.t.Context()))) })
	definitions := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	c.must(definitions.Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	c.await(name+" does not exist", func() bool {
		_, err := definitions.Get(c.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
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
	c.await("all entries of the route with 32 parents", func() bool {
		all := c.route("wide").Status.Parents
		return len(all) == 32 && !slices.ContainsFunc(all, func(p gateway.RouteParentStatus) bool { return len(p.Conditions) != 2 })
	})
	c.await("all routes attached", func() bool {
		all := c.gateway("gw").Status.Listeners
		return len(all) == 64 && all[0].AttachedRoutes == 1 && all[63].AttachedRoutes == routes
	})
	c.put("Gateway", "small", listening)
	c.awaitCondition("small", c.ofGateway("small"), "Accepted", "True/Accepted")
	if err := c.api.RESTClient().Post().Namespace(c.namespace).Resource("httproutes").Body([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute",
		"metadata":{"name":"unicode"},"spec":{"hostnames":["bücher.example"]}}`)).Do(t.Context()).Error(); !apierrors.IsInvalid(err) {
		t.Errorf("a host name that is not ASCII: %v", err)
	}
}
