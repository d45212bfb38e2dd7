package gatewaystatus

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// parentStates returns the name and the conditions of each entry.
func parentStates(t *testing.T, all []gateway.RouteParentStatus) (out []string) {
	t.Helper()
	for _, p := range all {
		if p.ControllerName != "istio.io/gateway-controller" {
			t.Errorf("an entry of controller %s", p.ControllerName)
		}
		out = append(out, fmt.Sprintf("%s: %s %s", p.ParentRef.Name, stated(t, p.Conditions, gateway.RouteConditionAccepted, 5), stated(t, p.Conditions, gateway.RouteConditionResolvedRefs, 5)))
	}
	return out
}

func TestRouteParents_Accepted(t *testing.T) {
	const to = "{parentRefs: [{name: gw, namespace: infra%s}], hostnames: [%s], rules: [{backendRefs: [{name: backend, port: 8080}]}]}"
	from := func(more, hosts string) string { return fmt.Sprintf(to, more, hosts) }
	all := `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}`
	for name, test := range map[string]struct {
		listeners       []string
		namespace, spec string
		want            string
		attached        []int32
	}{
		"same namespace":       {[]string{plain}, "infra", from("", ""), "True/Accepted", []int32{1}},
		"other namespace":      {[]string{plain}, "web", from("", ""), "False/NotAllowedByListeners", []int32{0}},
		"other namespace, All": {[]string{all}, "web", from("", ""), "True/Accepted", []int32{1}},
		"None": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}`}, "infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"selected": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {name: web}}}}}`},
			"web", from("", ""), "True/Accepted", []int32{1},
		},
		"not selected": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {name: web}}}}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"no selector": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector}}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"invalid selector": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: name, operator: Bad}]}}}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"other kinds": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}]}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"listener by name":       {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from(", sectionName: b", ""), "True/Accepted", []int32{0, 1}},
		"listener by port":       {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from(", port: 80", ""), "True/Accepted", []int32{1, 0}},
		"all listeners":          {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from("", ""), "True/Accepted", []int32{1, 1}},
		"unknown name":           {[]string{all}, "infra", from(", sectionName: c", ""), "False/NoMatchingParent", []int32{0}},
		"unknown port":           {[]string{all}, "infra", from(", port: 81", ""), "False/NoMatchingParent", []int32{0}},
		"name and port disagree": {[]string{all}, "infra", from(", sectionName: http, port: 81", ""), "False/NoMatchingParent", []int32{0}},
		"host of the listener": {
			[]string{`{name: a, port: 80, protocol: HTTP, hostname: a.example}`, `{name: b, port: 80, protocol: HTTP, hostname: b.example}`},
			"infra", from("", "x.example, b.example"), "True/Accepted", []int32{0, 1},
		},
		"other host": {
			[]string{`{name: a, port: 80, protocol: HTTP, hostname: a.example}`}, "infra", from("", "b.example"), "False/NoMatchingListenerHostname", []int32{0},
		},
		"missing certificate": {[]string{fmt.Sprintf(secure, "none")}, "infra", from("", ""), "True/Accepted", []int32{1}},
	} {
		t.Run(name, func(t *testing.T) {
			g, route := newGateway(t, test.listeners...), newRoute(t, test.namespace, test.spec)
			v := usual(t, g, route)
			if got := parentStates(t, routeParents(v, route)); !slices.Equal(got, []string{"gw: " + test.want + " True/ResolvedRefs"}) {
				t.Errorf("parents are %q, want %s", got, test.want)
			}
			var attached []int32
			for _, l := range gatewayStatus(v, g).Listeners {
				attached = append(attached, l.AttachedRoutes)
			}
			if !slices.Equal(attached, test.attached) {
				t.Errorf("attached are %v, want %v", attached, test.attached)
			}
		})
	}
}

// A route attaches to the listeners that support its kind.
func TestRouteParents_Kinds(t *testing.T) {
	listeners := []string{
		`{name: http, port: 80, protocol: HTTP}`, `{name: grpc, port: 81, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}`,
		`{name: raw, port: 443, protocol: TLS, hostname: "*.example", tls: {mode: Passthrough}}`,
		`{name: ended, port: 444, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: good}]}}`,
		`{name: tcp, port: 82, protocol: TCP}`, `{name: udp, port: 82, protocol: UDP}`,
	}
	const all, to = "{parentRefs: [{name: gw}]}", "{parentRefs: [{name: gw, sectionName: %s}]%s}"
	for _, test := range []struct {
		kind, spec string
		missing    []string
		accepted   string
		attached   []int32
	}{
		{"HTTPRoute", all, nil, "True/Accepted", []int32{1, 0, 0, 0, 0, 0}},
		{"GRPCRoute", all, nil, "True/Accepted", []int32{1, 1, 0, 0, 0, 0}},
		{"TLSRoute", all, nil, "True/Accepted", []int32{0, 0, 1, 1, 0, 0}},
		{"TLSRoute", "{parentRefs: [{name: gw}], hostnames: [a.other]}", nil, "True/Accepted", []int32{0, 0, 0, 1, 0, 0}},
		{"TLSRoute", fmt.Sprintf(to, "raw", ", hostnames: [a.other]"), nil, "False/NoMatchingListenerHostname", []int32{0, 0, 0, 0, 0, 0}},
		{"TLSRoute", fmt.Sprintf(to, "http", ""), nil, "False/NotAllowedByListeners", []int32{0, 0, 0, 0, 0, 0}},
		{"TCPRoute", all, nil, "True/Accepted", []int32{0, 0, 0, 1, 1, 0}},
		{"UDPRoute", all, nil, "True/Accepted", []int32{0, 0, 0, 0, 0, 1}},
		{"UDPRoute", fmt.Sprintf(to, "tcp", ""), nil, "False/NotAllowedByListeners", []int32{0, 0, 0, 0, 0, 0}},
		{"UDPRoute", all, []string{"GRPCRoute", "TCPRoute", "TLSRoute"}, "True/Accepted", []int32{0, 0, 0, 0, 0, 1}},
	} {
		g, r := newGateway(t, listeners...), newRoute(t, "infra", test.spec)
		r.Kind = test.kind
		v := usual(t, g, r)
		v.missing = test.missing
		if got := parentStates(t, routeParents(v, r)); !slices.Equal(got, []string{"gw: " + test.accepted + " True/ResolvedRefs"}) {
			t.Errorf("%s %s: parents are %q, want %s", test.kind, test.spec, got, test.accepted)
		}
		var attached []int32
		for _, l := range gatewayStatus(v, g).Listeners {
			attached = append(attached, l.AttachedRoutes)
		}
		if !slices.Equal(attached, test.attached) {
			t.Errorf("%s %s: attached are %v, want %v", test.kind, test.spec, attached, test.attached)
		}
	}
}

// Listeners support only the kinds that the API server serves.
func TestGatewayStatus_MissingKinds(t *testing.T) {
	g := newGateway(t, plain, `{name: tls, port: 443, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: good}]}}`,
		`{name: both, port: 81, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}, {kind: HTTPRoute}]}}`, `{name: tcp, port: 80, protocol: TCP}`)
	v := usual(t, g)
	v.missing = []string{"GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute"}
	want := []string{
		"http: " + good + ", HTTP, 0 routes",
		"tls: False/UnsupportedProtocol False/NoConflicts True/ResolvedRefs False/Invalid, , 0 routes",
		"both: True/Accepted False/NoConflicts False/InvalidRouteKinds False/Pending, HTTP, 0 routes",
		"tcp: False/UnsupportedProtocol False/NoConflicts True/ResolvedRefs False/Invalid, , 0 routes",
	}
	status := gatewayStatus(v, g)
	if got := listenerStates(t, status); !slices.Equal(got, want) {
		t.Errorf("listeners are\n%q, want\n%q", got, want)
	}
	if got := status.Listeners[1].Conditions[0].Message; got != "protocol TLS is not supported; use HTTP, HTTPS" {
		t.Errorf("message is %q", got)
	}
}

func TestRouteParents_UnknownFilter(t *testing.T) {
	r := newRoute(t, "infra", "{parentRefs: [{name: gw}], rules: [{filters: [{type: ExternalAuth}]}]}")
	if got := parentStates(t, routeParents(usual(t, newGateway(t, plain), r), r)); !slices.Equal(got, []string{"gw: False/UnsupportedValue True/ResolvedRefs"}) {
		t.Errorf("parents are %q", got)
	}
}

func TestHostsIntersect(t *testing.T) {
	for _, test := range []struct {
		listener, route string
		want            bool
	}{
		{"", "a.example", true}, {"a.example", "", true}, {"a.example", "a.example", true},
		{"a.example", "b.example", false}, {"*.example", "a.example", true}, {"*.example", "a.b.example", true}, {"*.example", "example", false},
		{"*.example", ".example", false}, {"a.example", "*.example", true}, {"example", "*.example", false}, {"*.example", "*.example", true},
		{"*.example", "*.a.example", true}, {"*.a.example", "*.example", true}, {"*.a.example", "*.b.example", false}, {"*.example", "a.example.org", false},
	} {
		var hosts []gateway.Hostname
		if test.route != "" {
			hosts = append(hosts, gateway.Hostname(test.route))
		}
		if got := hostsIntersect(test.listener, hosts); got != test.want {
			t.Errorf("%q and %q intersect: %v", test.listener, test.route, got)
		}
	}
}

func TestRouteParents_ResolvedRefs(t *testing.T) {
	const allowed = `{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}], to: [{group: "", kind: Service, name: backend}]}`
	for name, test := range map[string]struct {
		rules  string
		grants []string // in the namespace web
		want   string
	}{
		"exists":       {"[{backendRefs: [{name: backend, port: 8080}]}]", nil, "True/ResolvedRefs"},
		"none":         {"[{}]", nil, "True/ResolvedRefs"},
		"missing":      {"[{backendRefs: [{name: none, port: 8080}]}]", nil, "False/BackendNotFound"},
		"unknown port": {"[{backendRefs: [{name: backend, port: 8081}]}]", nil, "False/BackendNotFound"},
		"no port":      {"[{backendRefs: [{name: backend}]}]", nil, "False/BackendNotFound"},
		"external":     {"[{backendRefs: [{name: external, port: 8081}]}]", nil, "False/InvalidKind"},
		"extension":    {"[{filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Login, name: a}}]}]", nil, "False/InvalidKind"},
		"extension of a backend": {
			"[{backendRefs: [{name: backend, port: 8080, filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Login, name: a}}]}]}]", nil, "False/InvalidKind",
		},
		"other kind":                    {"[{backendRefs: [{name: backend, kind: Pod, port: 8080}]}]", nil, "False/InvalidKind"},
		"other group":                   {"[{backendRefs: [{name: backend, group: example.com, port: 8080}]}]", nil, "False/InvalidKind"},
		"second missing":                {"[{backendRefs: [{name: backend, port: 8080}]}, {backendRefs: [{name: backend, port: 8080}, {name: none, port: 8080}]}]", nil, "False/BackendNotFound"},
		"other namespace without grant": {"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]", nil, "False/RefNotPermitted"},
		"missing without grant":         {"[{backendRefs: [{name: none, namespace: web, port: 8080}]}]", []string{allowed}, "False/RefNotPermitted"},
		"other namespace":               {"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]", []string{allowed}, "True/ResolvedRefs"},
		"grant for Gateways": {
			"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]",
			[]string{`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: "", kind: Service}]}`}, "False/RefNotPermitted",
		},
		"missing mirror": {
			"[{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: none, port: 8080}}}]}]", nil, "False/BackendNotFound",
		},
		"missing mirror of a backend": {
			"[{backendRefs: [{name: backend, port: 8080, filters: [{type: RequestHeaderModifier}, {type: RequestMirror, requestMirror: {backendRef: {name: none, port: 8080}}}]}]}]",
			nil, "False/BackendNotFound",
		},
	} {
		t.Run(name, func(t *testing.T) {
			route := newRoute(t, "infra", "{parentRefs: [{name: gw}], rules: "+test.rules+"}")
			v := usual(t, newGateway(t, plain), route, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "external", Namespace: "infra"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName},
			})
			for _, spec := range test.grants {
				v.objects = append(v.objects, grant(t, "web", spec))
			}
			if got := parentStates(t, routeParents(v, route)); !slices.Equal(got, []string{"gw: True/Accepted " + test.want}) {
				t.Errorf("parents are %q, want %s", got, test.want)
			}
		})
	}
}

// The Gateway determines the revision, not the route.
func TestRouteParents_Revision(t *testing.T) {
	spec := "{parentRefs: [{name: none}, {name: other}, {name: canary}, {kind: Service, group: '', name: gw}, {group: example.com, name: gw}, {name: gw}], rules: [{}]}"
	for name, test := range map[string]struct {
		revision string
		route    map[string]string
		space    map[string]string
		want     []string
	}{
		"default revision":          {"stable", nil, nil, []string{"gw"}},
		"other revision":            {"canary", nil, nil, []string{"canary"}},
		"route of another revision": {"stable", map[string]string{"istio.io/rev": "canary"}, nil, []string{"gw"}},
		"revision of the namespace": {"canary", nil, map[string]string{"istio.io/rev": "canary"}, []string{"canary", "gw"}},
	} {
		t.Run(name, func(t *testing.T) {
			route := newRoute(t, "infra", spec)
			route.Labels = test.route
			v := usual(t, gatewayOf(t, "gw", reconcile.GatewayClass, ""), gatewayOf(t, "other", "other", ""), gatewayOf(t, "canary", reconcile.GatewayClass, "canary"), gatewayOf(t, "lost", "none", ""), route)
			v.revision = test.revision
			if test.space != nil {
				v.namespace("infra").Labels = test.space
			}
			for i := range test.want {
				test.want[i] += ": True/Accepted True/ResolvedRefs"
			}
			if got := parentStates(t, routeParents(v, route)); !slices.Equal(got, test.want) {
				t.Errorf("parents are %q, want %q", got, test.want)
			}
		})
	}
}

func gatewayOf(t *testing.T, name, class, revision string) *gateway.Gateway {
	g := newGateway(t, plain)
	g.Name, g.Spec.GatewayClassName = name, gateway.ObjectName(class)
	if revision != "" {
		g.Labels = map[string]string{"istio.io/rev": revision}
	}
	return g
}

func TestObsolete(t *testing.T) {
	route := newRoute(t, "web", "{parentRefs: [{name: gw, namespace: infra}, {name: canary, namespace: infra}, {name: other, namespace: infra}, {name: lost, namespace: infra}, {name: none, namespace: infra}]}")
	for parent, want := range map[string][2]bool{
		"{name: gw, namespace: infra, sectionName: http}":          {true, false},
		"{name: gw, namespace: infra}":                             {true, false}, // a duplicate
		"{name: canary, namespace: infra, sectionName: http}":      {false, false},
		"{name: canary, namespace: infra}":                         {false, false},
		"{name: other, namespace: infra}":                          {true, false},
		"{name: lost, namespace: infra}":                           {false, false},
		"{name: lost, namespace: infra, port: 81}":                 {true, false},
		"{name: none, namespace: infra}":                           {true, true},
		"{name: none}":                                             {true, false},
		"{kind: Service, group: '', name: gw, namespace: infra}":   {false, false},
		"{kind: ListenerSet, name: gw, namespace: infra, port: 1}": {false, false},
	} {
		v := usual(t, gatewayOf(t, "gw", reconcile.GatewayClass, ""), gatewayOf(t, "other", "other", ""), gatewayOf(t, "canary", reconcile.GatewayClass, "canary"), gatewayOf(t, "lost", "none", ""), route)
		if remove, verify := obsolete(v, route, *read[gateway.ParentReference](t, parent)); remove != want[0] || verify != want[1] {
			t.Errorf("%s: remove %v, verify %v, want %v", parent, remove, verify, want)
		}
	}
}
