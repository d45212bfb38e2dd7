package gatewaystatus

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// largest is a view of a cluster in which each object has the maximal size that the API server accepts.
type largest struct {
	table
	named map[string]metav1.Object
	given []*gateway.ReferenceGrant
	calls map[string]int
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

func (l *largest) secret(string, string) *corev1.Secret {
	l.calls["secret"]++
	return &corev1.Secret{}
}

func (l *largest) grants(string) []*gateway.ReferenceGrant {
	l.calls["grants"]++
	return l.given
}

// gatewayWith returns a Gateway with 64 listeners, each with certificates of another namespace.
func gatewayWith(name string, certificates int) *gateway.Gateway {
	g := &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: "u"}, Spec: gateway.GatewaySpec{GatewayClassName: "istio"}}
	other := gateway.Namespace("b")
	for i := range 64 {
		l := gateway.Listener{
			Name: gateway.SectionName(fmt.Sprint("l", i)), Port: 443, Protocol: gateway.HTTPSProtocolType,
			Hostname: new(gateway.Hostname(fmt.Sprintf("host%d.%s", i, strings.Repeat("a.", 100)))), TLS: &gateway.ListenerTLSConfig{},
		}
		for c := range certificates {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, gateway.SecretObjectReference{Name: gateway.ObjectName(fmt.Sprint("c", i, c)), Namespace: &other})
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

func newLargest() *largest {
	grant := &gateway.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "g"}}
	for _, pair := range [][2]string{{"Gateway", "Secret"}, {"HTTPRoute", "Service"}} {
		grant.Spec.From = append(grant.Spec.From, gateway.ReferenceGrantFrom{Group: gateway.GroupName, Kind: gateway.Kind(pair[0]), Namespace: "a"})
		grant.Spec.To = append(grant.Spec.To, gateway.ReferenceGrantTo{Kind: gateway.Kind(pair[1])})
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	l := &largest{named: map[string]metav1.Object{"b/s": service}, given: []*gateway.ReferenceGrant{grant}, calls: map[string]int{}}
	for i := range 32 {
		l.named[fmt.Sprint("a/g", i)] = gatewayWith(fmt.Sprint("g", i), 64)
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
	v := newLargest()
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
