package gatewaystatus

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// largest is a view of a cluster in which each object has the maximal size that the API server accepts.
type largest struct {
	table
	named  map[string]metav1.Object
	all    []*route
	given  []*gateway.ReferenceGrant
	parsed map[*gateway.Gateway][]labels.Selector
	calls  map[string]int
}

func (l *largest) gateway(namespace, name string) *gateway.Gateway {
	g, _ := l.named[namespace+"/"+name].(*gateway.Gateway)
	return g
}

func (l *largest) service(namespace, name string) *corev1.Service {
	l.calls["service"]++
	s, _ := l.named[namespace+"/"+name].(*corev1.Service)
	return s
}

func (l *largest) selectors(g *gateway.Gateway) []labels.Selector {
	if l.parsed[g] == nil {
		l.parsed[g] = selectorsOf(g)
	}
	return l.parsed[g]
}

func (l *largest) services(string, string) []*corev1.Service {
	var all []*corev1.Service
	for _, o := range l.named {
		if s, ok := o.(*corev1.Service); ok {
			all = append(all, s)
		}
	}
	return all
}

func (l *largest) secret(string, string) *corev1.Secret {
	l.calls["secret"]++
	return &corev1.Secret{}
}

func (l *largest) grants(string) []*gateway.ReferenceGrant {
	l.calls["grants"]++
	return l.given
}

func (l *largest) routes(string, string) []*route { return l.all }

func (l *largest) namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}}
}

// gatewayWith returns a Gateway with 64 listeners, each with certificates of another namespace and a selector of namespaces.
func gatewayWith(name string, certificates, selector int) *gateway.Gateway {
	g := &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: "u"}, Spec: gateway.GatewaySpec{GatewayClassName: "istio"}}
	from := gateway.NamespacesFromSelector
	other := gateway.Namespace("b")
	for i := range 64 {
		l := gateway.Listener{
			Name: gateway.SectionName(fmt.Sprint("l", i)), Port: 443, Protocol: gateway.HTTPSProtocolType,
			Hostname: new(gateway.Hostname(fmt.Sprintf("host%d.%s", i, strings.Repeat("a.", 100)))), TLS: &gateway.ListenerTLSConfig{},
		}
		for c := range certificates {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, gateway.SecretObjectReference{Name: gateway.ObjectName(fmt.Sprint("c", i, c)), Namespace: &other})
		}
		if selector > 0 {
			values := make([]string, selector)
			for v := range values {
				values[v] = fmt.Sprint("v", v)
			}
			values[len(values)-1] = "a"
			l.AllowedRoutes = &gateway.AllowedRoutes{Namespaces: &gateway.RouteNamespaces{From: &from, Selector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: values}},
			}}}
		}
		g.Spec.Listeners = append(g.Spec.Listeners, l)
	}
	return g
}

// routeWith returns a route with 32 parents, 16 hostnames and backends of another namespace.
func routeWith(name string, rules, refs, mirrors int, parents func(i int) gateway.ParentReference) *route {
	r := &route{TypeMeta: metav1.TypeMeta{Kind: "HTTPRoute"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	for i := range 32 {
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, parents(i))
	}
	for i := range 16 {
		r.Spec.Hostnames = append(r.Spec.Hostnames, gateway.Hostname(fmt.Sprintf("other%d.%s", i, strings.Repeat("a.", 100))))
	}
	other := gateway.Namespace("b")
	backend := gateway.BackendObjectReference{Name: "s", Namespace: &other, Port: new(gateway.PortNumber(1))}
	for range rules {
		rule := routeRule{}
		for range refs {
			ref := routeBackend{BackendObjectReference: backend}
			for range mirrors {
				ref.Filters = append(ref.Filters, routeFilter{Type: gateway.HTTPRouteFilterRequestMirror, RequestMirror: &gateway.HTTPRequestMirrorFilter{BackendRef: backend}})
			}
			rule.BackendRefs = append(rule.BackendRefs, ref)
		}
		r.Spec.Rules = append(r.Spec.Rules, rule)
	}
	return r
}

func grantsOf(n int) (all []*gateway.ReferenceGrant) {
	for i := range n {
		g := &gateway.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: fmt.Sprint("g", i)}}
		for range 16 {
			g.Spec.From = append(g.Spec.From, gateway.ReferenceGrantFrom{Group: gateway.GroupName, Kind: "Other", Namespace: "a"})
			g.Spec.To = append(g.Spec.To, gateway.ReferenceGrantTo{Kind: "Other"})
		}
		if i == n-1 {
			g.Spec.From[15] = gateway.ReferenceGrantFrom{Group: gateway.GroupName, Kind: "Gateway", Namespace: "a"}
			g.Spec.From[14] = gateway.ReferenceGrantFrom{Group: gateway.GroupName, Kind: "HTTPRoute", Namespace: "a"}
			g.Spec.To[15] = gateway.ReferenceGrantTo{Kind: "Secret"}
			g.Spec.To[14] = gateway.ReferenceGrantTo{Kind: "Service"}
		}
		all = append(all, g)
	}
	return all
}

func serviceWith(ports int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "s"}}
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: int32(i + 2)})
	}
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 1})
	return s
}

func newLargest(certificates, selector, grants, ports int) *largest {
	l := &largest{
		named: map[string]metav1.Object{"b/s": serviceWith(ports)}, given: grantsOf(grants),
		parsed: map[*gateway.Gateway][]labels.Selector{}, calls: map[string]int{},
	}
	for i := range 32 {
		l.named[fmt.Sprint("a/g", i)] = gatewayWith(fmt.Sprint("g", i), certificates, selector)
	}
	return l
}

// eachGateway refers to 32 Gateways, eachListener to 32 listeners of one Gateway.
func eachGateway(i int) gateway.ParentReference {
	return gateway.ParentReference{Name: gateway.ObjectName(fmt.Sprint("g", i))}
}

func eachListener(i int) gateway.ParentReference {
	return gateway.ParentReference{Name: "g0", SectionName: new(gateway.SectionName(fmt.Sprint("l", i)))}
}

// The cost of a status is linear in the size of its object: grants are read once for all references, backends once for all parents,
// and routes need no certificates.
func TestLargest(t *testing.T) {
	const backends = 16*16 + 16*16*16
	v := newLargest(64, 1, 1, 1)
	for name, test := range map[string]struct {
		compute func()
		want    map[string]int
	}{
		"Gateway":               {func() { gatewayStatus(v, v.gateway("a", "g0")) }, map[string]int{"grants": 1, "secret": 64 * 64}},
		"route of 32 Gateways":  {func() { routeParents(v, routeWith("r", 16, 16, 16, eachGateway)) }, map[string]int{"grants": 1, "service": backends}},
		"route of 32 listeners": {func() { routeParents(v, routeWith("r", 16, 16, 16, eachListener)) }, map[string]int{"grants": 1, "service": backends}},
	} {
		clear(v.calls)
		test.compute()
		if !maps.Equal(v.calls, test.want) {
			t.Errorf("%s: calls %v, want %v", name, v.calls, test.want)
		}
	}
}

// BenchmarkLargest measures the computation of one status.
func BenchmarkLargest(b *testing.B) {
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
		})
	}
	v := newLargest(64, 0, 1, 1)
	run("Gateway/64 certificates", func() { gatewayStatus(v, v.gateway("a", "g0")) })
	run("route/32 Gateways with 64 certificates", func() { routeParents(v, routeWith("r", 1, 1, 0, eachGateway)) })
	v = newLargest(1, 0, 10000, 1)
	run("Gateway/10,000 grants", func() { gatewayStatus(v, v.gateway("a", "g0")) })
	run("route/10,000 grants", func() { routeParents(v, routeWith("r", 16, 16, 16, eachGateway)) })
	v = newLargest(64, 0, 10000, 1)
	run("Gateway/64 certificates, 10,000 grants", func() { gatewayStatus(v, v.gateway("a", "g0")) })
	v = newLargest(1, 0, 1, 10000)
	run("route/4,352 backends, 10,000 ports", func() { routeParents(v, routeWith("r", 16, 16, 16, eachGateway)) })
	v = newLargest(1, 1500, 1, 1)
	run("route/32 Gateways with selectors", func() { routeParents(v, routeWith("r", 1, 1, 0, eachGateway)) })
	for i := range 1000 {
		v.all = append(v.all, routeWith(fmt.Sprint("r", i), 1, 1, 0, eachListener))
	}
	run("Gateway/selectors, 10 routes", func() { v.all = v.all[:10]; gatewayStatus(v, v.gateway("a", "g0")) })
	v = newLargest(1, 0, 1, 1)
	for i := range 1000 {
		v.all = append(v.all, routeWith(fmt.Sprint("r", i), 1, 1, 0, eachListener))
	}
	run("Gateway/1,000 routes, 32 sections", func() { gatewayStatus(v, v.gateway("a", "g0")) })
	v.all = nil
	for i := range 1000 {
		r := routeWith(fmt.Sprint("r", i), 1, 1, 0, func(int) gateway.ParentReference { return gateway.ParentReference{Name: "g0"} })
		r.Spec.ParentRefs = r.Spec.ParentRefs[:1]
		v.all = append(v.all, r)
	}
	run("Gateway/1,000 routes, 16 hostnames", func() { gatewayStatus(v, v.gateway("a", "g0")) })
	for i := range 10000 {
		s := serviceWith(1)
		s.Name = fmt.Sprint("s", i)
		v.named["a/"+s.Name] = s
	}
	v.all = nil
	run("Gateway/10,000 labelled Services", func() { gatewayStatus(v, v.gateway("a", "g0")) })
}
