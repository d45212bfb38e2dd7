package gatewaystatus

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// parentsSay are the entries of a route's status: its parent, Accepted and ResolvedRefs.
func parentsSay(t *testing.T, all []gateway.RouteParentStatus) (out []string) {
	t.Helper()
	for _, p := range all {
		if p.ControllerName != "istio.io/gateway-controller" {
			t.Errorf("an entry of controller %s", p.ControllerName)
		}
		out = append(out, fmt.Sprintf("%s: %s %s", p.ParentRef.Name, said(t, p.Conditions, gateway.RouteConditionAccepted, 5), said(t, p.Conditions, gateway.RouteConditionResolvedRefs, 5)))
	}
	return out
}

func TestStatusOfRoutes(t *testing.T) {
	const to = "{parentRefs: [{name: gw, namespace: infra%s}], hostnames: [%s], rules: [{backendRefs: [{name: backend, port: 8080}]}]}"
	from := func(more, hosts string) string { return fmt.Sprintf(to, more, hosts) }
	all := `{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}`
	for name, test := range map[string]struct {
		listeners       []string
		namespace, spec string
		want            string
		attached        []int32
	}{
		"of the same namespace": {[]string{plain}, "infra", from("", ""), "True/Accepted", []int32{1}},
		"of another":            {[]string{plain}, "web", from("", ""), "False/NotAllowedByListeners", []int32{0}},
		"of another, from all":  {[]string{all}, "web", from("", ""), "True/Accepted", []int32{1}},
		"from none": {
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
		"a selector that is not valid": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: name, operator: Bad}]}}}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"kinds that exclude it": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}]}}`},
			"infra", from("", ""), "False/NotAllowedByListeners", []int32{0},
		},
		"a listener by name":     {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from(", sectionName: b", ""), "True/Accepted", []int32{0, 1}},
		"a listener by port":     {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from(", port: 80", ""), "True/Accepted", []int32{1, 0}},
		"all listeners":          {[]string{all, `{name: b, port: 81, protocol: HTTP}`}, "infra", from("", ""), "True/Accepted", []int32{1, 1}},
		"no listener of a name":  {[]string{all}, "infra", from(", sectionName: c", ""), "False/NoMatchingParent", []int32{0}},
		"no listener of a port":  {[]string{all}, "infra", from(", port: 81", ""), "False/NoMatchingParent", []int32{0}},
		"name and port disagree": {[]string{all}, "infra", from(", sectionName: http, port: 81", ""), "False/NoMatchingParent", []int32{0}},
		"a host of the listener": {
			[]string{`{name: a, port: 80, protocol: HTTP, hostname: a.example}`, `{name: b, port: 80, protocol: HTTP, hostname: b.example}`},
			"infra", from("", "x.example, b.example"), "True/Accepted", []int32{0, 1},
		},
		"no host of the listener": {
			[]string{`{name: a, port: 80, protocol: HTTP, hostname: a.example}`}, "infra", from("", "b.example"), "False/NoMatchingListenerHostname", []int32{0},
		},
		"with a certificate that is missing": {[]string{fmt.Sprintf(secure, "none")}, "infra", from("", ""), "True/Accepted", []int32{1}},
	} {
		t.Run(name, func(t *testing.T) {
			g, route := aGateway(t, test.listeners...), aRoute(t, test.namespace, test.spec)
			v := usual(t, g, route)
			if got := parentsSay(t, routeParents(v, route)); !slices.Equal(got, []string{"gw: " + test.want + " True/ResolvedRefs"}) {
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

func TestHosts(t *testing.T) {
	for _, test := range []struct {
		listener, route string
		want            bool
	}{
		{"", "a.example", true}, {"a.example", "", true}, {"a.example", "a.example", true}, {"a.example", "A.Example", true},
		{"a.example", "b.example", false}, {"*.example", "a.example", true}, {"*.example", "a.b.example", true}, {"*.example", "example", false},
		{"*.example", ".example", false}, {"a.example", "*.example", true}, {"example", "*.example", false}, {"*.example", "*.example", true},
		{"*.example", "*.a.example", true}, {"*.a.example", "*.example", true}, {"*.a.example", "*.b.example", false}, {"*.example", "a.example.org", false},
	} {
		var hosts []gateway.Hostname
		if test.route != "" {
			hosts = append(hosts, gateway.Hostname(test.route))
		}
		if got := hostsMeet(test.listener, hosts); got != test.want {
			t.Errorf("%q and %q meet: %v", test.listener, test.route, got)
		}
	}
}

func TestBackendsOfRoutes(t *testing.T) {
	const allowed = `{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}], to: [{group: "", kind: Service, name: backend}]}`
	for name, test := range map[string]struct {
		rules  string
		grants []string // in the namespace web
		want   string
	}{
		"there":                   {"[{backendRefs: [{name: backend, port: 8080}]}]", nil, "True/ResolvedRefs"},
		"none":                    {"[{}]", nil, "True/ResolvedRefs"},
		"missing":                 {"[{backendRefs: [{name: none, port: 8080}]}]", nil, "False/BackendNotFound"},
		"without such a port":     {"[{backendRefs: [{name: backend, port: 8081}]}]", nil, "False/BackendNotFound"},
		"without a port":          {"[{backendRefs: [{name: backend}]}]", nil, "False/BackendNotFound"},
		"external":                {"[{backendRefs: [{name: external, port: 8081}]}]", nil, "True/ResolvedRefs"},
		"of another kind":         {"[{backendRefs: [{name: backend, kind: Pod, port: 8080}]}]", nil, "False/InvalidKind"},
		"of another group":        {"[{backendRefs: [{name: backend, group: example.com, port: 8080}]}]", nil, "False/InvalidKind"},
		"the second missing":      {"[{backendRefs: [{name: backend, port: 8080}]}, {backendRefs: [{name: backend, port: 8080}, {name: none, port: 8080}]}]", nil, "False/BackendNotFound"},
		"elsewhere without grant": {"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]", nil, "False/RefNotPermitted"},
		"missing without grant":   {"[{backendRefs: [{name: none, namespace: web, port: 8080}]}]", []string{allowed}, "False/RefNotPermitted"},
		"elsewhere":               {"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]", []string{allowed}, "True/ResolvedRefs"},
		"a Gateway's grant": {
			"[{backendRefs: [{name: backend, namespace: web, port: 8080}]}]",
			[]string{`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: "", kind: Service}]}`}, "False/RefNotPermitted",
		},
		"mirrored to what is missing": {
			"[{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: none, port: 8080}}}]}]", nil, "False/BackendNotFound",
		},
		"a backend mirrored to what is missing": {
			"[{backendRefs: [{name: backend, port: 8080, filters: [{type: RequestHeaderModifier}, {type: RequestMirror, requestMirror: {backendRef: {name: none, port: 8080}}}]}]}]",
			nil, "False/BackendNotFound",
		},
	} {
		t.Run(name, func(t *testing.T) {
			route := aRoute(t, "infra", "{parentRefs: [{name: gw}], rules: "+test.rules+"}")
			v := usual(t, aGateway(t, plain), route, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "external", Namespace: "infra"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName},
			})
			for _, spec := range test.grants {
				v.objects = append(v.objects, grant(t, "web", spec))
			}
			if got := parentsSay(t, routeParents(v, route)); !slices.Equal(got, []string{"gw: True/Accepted " + test.want}) {
				t.Errorf("parents are %q, want %s", got, test.want)
			}
		})
	}
}

// Entries are made for Gateways of this controller and revision, by routes of the revision.
func TestWhoseParents(t *testing.T) {
	spec := "{parentRefs: [{name: none}, {name: other}, {name: canary}, {kind: Service, group: '', name: gw}, {group: example.com, name: gw}, {name: gw}], rules: [{}]}"
	gatewayOf := func(name, class, revision string) *gateway.Gateway {
		g := aGateway(t, plain)
		g.Name, g.Spec.GatewayClassName = name, gateway.ObjectName(class)
		if revision != "" {
			g.Labels = map[string]string{"istio.io/rev": revision}
		}
		return g
	}
	for name, test := range map[string]struct {
		revision string
		route    map[string]string
		space    map[string]string
		want     []string
	}{
		"the default revision's":           {"stable", nil, nil, []string{"gw: True/Accepted True/ResolvedRefs"}},
		"another's":                        {"canary", nil, nil, nil},
		"another's route":                  {"stable", map[string]string{"istio.io/rev": "canary"}, nil, nil},
		"the namespace's revision":         {"canary", nil, map[string]string{"istio.io/rev": "canary"}, []string{"canary: True/Accepted True/ResolvedRefs", "gw: True/Accepted True/ResolvedRefs"}},
		"the label before the namespace's": {"stable", map[string]string{"istio.io/rev": "stable"}, map[string]string{"istio.io/rev": "canary"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			route := aRoute(t, "infra", spec)
			route.Labels = test.route
			v := usual(t, gatewayOf("gw", ClassName, ""), gatewayOf("other", "other", ""), gatewayOf("canary", ClassName, "canary"), gatewayOf("lost", "none", ""), route)
			v.revision = test.revision
			if test.space != nil {
				v.namespace("infra").Labels = test.space
			}
			if got := parentsSay(t, routeParents(v, route)); !slices.Equal(got, test.want) {
				t.Errorf("parents are %q, want %q", got, test.want)
			}
		})
	}
	route := aRoute(t, "unknown", "{parentRefs: [{name: gw, namespace: infra}]}")
	if got := routeParents(usual(t, gatewayOf("gw", ClassName, ""), route), route); got != nil {
		t.Errorf("of a namespace that is not known: %v", got)
	}
}

// A route counts once for a listener, however often it names it, and not at all as another revision's.
func TestARouteCountsOnce(t *testing.T) {
	g := aGateway(t, plain)
	v := usual(t, g, aRoute(t, "infra", "{parentRefs: [{name: gw}, {name: gw, sectionName: http}, {name: gw, port: 81}]}"))
	other := aRoute(t, "infra", "{parentRefs: [{name: gw}]}")
	other.Name, other.Labels = "other", map[string]string{"istio.io/rev": "canary"}
	elsewhere := aRoute(t, "infra", "{parentRefs: [{name: gw, sectionName: none}, {name: elsewhere}, {name: gw, kind: Service, group: ''}]}")
	elsewhere.Name = "elsewhere"
	v.objects = append(v.objects, other, elsewhere)
	if got := gatewayStatus(v, g).Listeners[0].AttachedRoutes; got != 1 {
		t.Errorf("%d routes are attached", got)
	}
}

// The class istio is this controller's where it is missing, and nobody's but its own controller's where it is there.
func TestWhoseClass(t *testing.T) {
	foreign := newClass()
	foreign.Spec.ControllerName = "example.com/other"
	for name, test := range map[string]struct {
		class string
		there *gateway.GatewayClass
		want  bool
	}{
		"there":            {ClassName, newClass(), true},
		"missing":          {ClassName, nil, true},
		"another's":        {ClassName, foreign, false},
		"one of no object": {"none", newClass(), false},
	} {
		g := aGateway(t, plain)
		g.Spec.GatewayClassName = gateway.ObjectName(test.class)
		v := usual(t, g)
		v.objects = slices.DeleteFunc(v.objects, func(o metav1.Object) bool { _, is := o.(*gateway.GatewayClass); return is })
		if test.there != nil {
			v.objects = append(v.objects, test.there)
		}
		if got := ours(v, g); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
