package gatewaystatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	plain  = `{name: http, port: 80, protocol: HTTP}`
	secure = `{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: %s}]}}`
	good   = "True/Accepted False/NoConflicts True/ResolvedRefs True/Programmed"
)

// listenerStates returns the conditions, the kinds without "Route", and the number of routes of each listener.
func listenerStates(t *testing.T, status gateway.GatewayStatus) (all []string) {
	t.Helper()
	for _, l := range status.Listeners {
		one := string(l.Name) + ":"
		for _, kind := range []gateway.ListenerConditionType{
			gateway.ListenerConditionAccepted, gateway.ListenerConditionConflicted, gateway.ListenerConditionResolvedRefs, gateway.ListenerConditionProgrammed,
		} {
			one += " " + stated(t, l.Conditions, kind, 3)
		}
		if l.SupportedKinds == nil {
			t.Error("supportedKinds is null")
		}
		var kinds []string
		for _, kind := range l.SupportedKinds {
			if *kind.Group != gateway.GroupName {
				t.Errorf("kinds are %v", l.SupportedKinds)
			}
			kinds = append(kinds, strings.TrimSuffix(string(kind.Kind), "Route"))
		}
		all = append(all, fmt.Sprintf("%s, %s, %d routes", one, strings.Join(kinds, "+"), l.AttachedRoutes))
	}
	return all
}

func TestGatewayStatus_Listeners(t *testing.T) {
	unresolved := func(reason string) string {
		return "https: True/Accepted False/NoConflicts False/" + reason + " False/Invalid, GRPC+HTTP, 0 routes"
	}
	certificate := func(ref string) string { return fmt.Sprintf(secure, ref) }
	for name, test := range map[string]struct {
		listeners []string
		grants    []string // in the namespace web
		accepted  string   // the Gateway's
		want      []string
	}{
		"HTTP":               {[]string{plain}, nil, "True/Accepted", []string{"http: " + good + ", GRPC+HTTP, 0 routes"}},
		"HTTPS":              {[]string{certificate("good")}, nil, "True/Accepted", []string{"https: " + good + ", GRPC+HTTP, 0 routes"}},
		"missing Secret":     {[]string{certificate("none")}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")}},
		"invalid Secret":     {[]string{certificate("bad")}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")}},
		"one of two invalid": {[]string{certificate("good}, {name: bad")}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")}},
		"other group":        {[]string{certificate("good, group: example.com")}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")}},
		"other kind":         {[]string{certificate("good, kind: ConfigMap")}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")}},
		"no certificate": {
			[]string{`{name: https, port: 443, protocol: HTTPS}`}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")},
		},
		"empty tls": {
			[]string{`{name: https, port: 443, protocol: HTTPS, tls: {}}`}, nil, "True/ListenersNotValid", []string{unresolved("InvalidCertificateRef")},
		},
		"certificate without grant":         {[]string{certificate("good, namespace: web")}, nil, "True/ListenersNotValid", []string{unresolved("RefNotPermitted")}},
		"missing certificate without grant": {[]string{certificate("none, namespace: web")}, nil, "True/ListenersNotValid", []string{unresolved("RefNotPermitted")}},
		"unrelated grants": {[]string{certificate("good, namespace: web")}, []string{
			`{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}], to: [{group: "", kind: Secret}]}`,
			`{from: [{group: example.com, kind: Gateway, namespace: infra}], to: [{group: "", kind: Secret}]}`,
			`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: web}], to: [{group: "", kind: Secret}]}`,
			`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: "", kind: Service}]}`,
			`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: example.com, kind: Secret}]}`,
			`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: "", kind: Secret, name: other}]}`,
		}, "True/ListenersNotValid", []string{unresolved("RefNotPermitted")}},
		"grant": {[]string{certificate("good, namespace: web")}, []string{
			`{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: "", kind: Secret, name: good}]}`,
		}, "True/Accepted", []string{"https: " + good + ", GRPC+HTTP, 0 routes"}},
		"grant for all": {[]string{certificate("good, namespace: web")}, []string{
			`{from: [{group: a, kind: B, namespace: c}, {group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: d, kind: E}, {group: "", kind: Secret}]}`,
		}, "True/Accepted", []string{"https: " + good + ", GRPC+HTTP, 0 routes"}},
		"unknown protocol": {
			[]string{`{name: x, port: 81, protocol: example.com/X}`}, nil, "False/ListenersNotValid",
			[]string{"x: False/UnsupportedProtocol False/NoConflicts True/ResolvedRefs False/Invalid, , 0 routes"},
		},
		"one known protocol": {
			[]string{plain, `{name: x, port: 80, protocol: example.com/X}`}, nil, "True/ListenersNotValid",
			[]string{"http: " + good + ", GRPC+HTTP, 0 routes", "x: False/UnsupportedProtocol False/NoConflicts True/ResolvedRefs False/Invalid, , 0 routes"},
		},
		"unknown kind": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}]}}`}, nil, "True/ListenersNotValid",
			[]string{"http: True/Accepted False/NoConflicts False/InvalidRouteKinds False/Invalid, , 0 routes"},
		},
		"kind of another group": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{group: example.com, kind: HTTPRoute}]}}`}, nil, "True/ListenersNotValid",
			[]string{"http: True/Accepted False/NoConflicts False/InvalidRouteKinds False/Invalid, , 0 routes"},
		},
		"known and unknown kind": {
			[]string{`{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}, {kind: HTTPRoute}, {group: gateway.networking.k8s.io, kind: HTTPRoute}]}}`},
			nil, "True/Accepted",
			[]string{"http: True/Accepted False/NoConflicts False/InvalidRouteKinds True/Programmed, HTTP, 0 routes"},
		},
		"two protocols on a port": {
			[]string{plain, `{name: https, port: 80, protocol: HTTPS, tls: {certificateRefs: [{name: good}]}}`}, nil, "False/ListenersNotValid",
			[]string{
				"http: False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs False/Invalid, GRPC+HTTP, 0 routes",
				"https: False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs False/Invalid, GRPC+HTTP, 0 routes",
			},
		},
		"two with the same hostname": {
			[]string{
				`{name: a, port: 80, protocol: HTTP, hostname: a.example}`, `{name: b, port: 80, protocol: HTTP, hostname: a.example}`,
				`{name: c, port: 80, protocol: HTTP, hostname: c.example}`,
			}, nil, "True/ListenersNotValid",
			[]string{
				"a: False/HostnameConflict True/HostnameConflict True/ResolvedRefs False/Invalid, GRPC+HTTP, 0 routes",
				"b: False/HostnameConflict True/HostnameConflict True/ResolvedRefs False/Invalid, GRPC+HTTP, 0 routes",
				"c: " + good + ", GRPC+HTTP, 0 routes",
			},
		},
		"unknown kind next to another protocol": {
			[]string{`{name: https, port: 80, protocol: HTTPS, allowedRoutes: {kinds: [{kind: InvalidRoute}]}, tls: {certificateRefs: [{name: good}]}}`, plain}, nil, "True/ListenersNotValid",
			[]string{"https: True/Accepted False/NoConflicts False/InvalidRouteKinds False/Invalid, , 0 routes", "http: " + good + ", GRPC+HTTP, 0 routes"},
		},
		"TCP next to HTTP": {
			[]string{`{name: tcp, port: 80, protocol: TCP}`, plain}, nil, "True/ListenersNotValid",
			[]string{
				"tcp: False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs False/Invalid, TCP, 0 routes",
				"http: " + good + ", GRPC+HTTP, 0 routes",
			},
		},
		"HTTPS and TLS with different hosts": {
			[]string{
				`{name: https, port: 443, protocol: HTTPS, hostname: "*.example.com", tls: {certificateRefs: [{name: good}]}}`,
				`{name: tls, port: 443, protocol: TLS, hostname: a.example.com, tls: {mode: Passthrough}}`,
			}, nil, "True/Accepted", []string{"https: " + good + ", GRPC+HTTP, 0 routes", "tls: " + good + ", TLS, 0 routes"},
		},
		"HTTPS and TLS with one host": {
			[]string{
				`{name: https, port: 443, protocol: HTTPS, hostname: a.example.com, tls: {certificateRefs: [{name: good}]}}`,
				`{name: tls, port: 443, protocol: TLS, hostname: a.example.com, tls: {mode: Passthrough}}`, plain,
			}, nil, "True/ListenersNotValid", []string{
				"https: False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs False/Invalid, GRPC+HTTP, 0 routes",
				"tls: False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs False/Invalid, TLS, 0 routes",
				"http: " + good + ", GRPC+HTTP, 0 routes",
			},
		},
		"TLS termination": {
			[]string{`{name: tls, port: 443, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: good}]}}`}, nil, "True/Accepted",
			[]string{"tls: " + good + ", TCP+TLS, 0 routes"},
		},
		"TLS termination without certificate": {
			[]string{`{name: tls, port: 443, protocol: TLS, tls: {mode: Terminate}}`}, nil, "True/ListenersNotValid",
			[]string{"tls: True/Accepted False/NoConflicts False/InvalidCertificateRef False/Invalid, TCP+TLS, 0 routes"},
		},
		"TCP and UDP": {
			[]string{`{name: tcp, port: 80, protocol: TCP}`, `{name: udp, port: 80, protocol: UDP}`}, nil, "True/Accepted",
			[]string{"tcp: " + good + ", TCP, 0 routes", "udp: True/Accepted False/NoConflicts True/ResolvedRefs False/Pending, UDP, 0 routes"},
		},
		"port that the Service lacks": {
			[]string{plain, `{name: new, port: 8081, protocol: HTTP}`}, nil, "True/Accepted",
			[]string{"http: " + good + ", GRPC+HTTP, 0 routes", "new: True/Accepted False/NoConflicts True/ResolvedRefs False/Pending, GRPC+HTTP, 0 routes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, test.listeners...)
			v := usual(t, g)
			for _, spec := range test.grants {
				v.objects = append(v.objects, grant(t, "web", spec))
			}
			status := gatewayStatus(v, g)
			if got := listenerStates(t, status); !slices.Equal(got, test.want) {
				t.Errorf("listeners are\n%q, want\n%q", got, test.want)
			}
			if got := stated(t, status.Conditions, gateway.GatewayConditionAccepted, 3); got != test.accepted {
				t.Errorf("Accepted is %s, want %s", got, test.accepted)
			}
		})
	}
}

func TestGatewayStatus_Programmed(t *testing.T) {
	deployment := func(change func(*appsv1.Deployment)) func(*table) {
		return func(v *table) { change(v.deployments("infra", "gw")[0]) }
	}
	service := func(change func(*corev1.Service)) func(*table) {
		return func(v *table) { change(v.services("infra", "gw")[0]) }
	}
	for name, test := range map[string]struct {
		change            func(*table)
		gateway, listener string
	}{
		"complete":                    {func(*table) {}, "True/Programmed", "True/Programmed"},
		"no Deployment":               {deployment(func(d *appsv1.Deployment) { d.Labels = nil }), "False/Pending", "False/Pending"},
		"Deployment of another owner": {deployment(func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "other" }), "False/Pending", "False/Pending"},
		"only old pods":               {deployment(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 }), "True/Programmed", "True/Programmed"},
		"no pod": {deployment(func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 0, 0, 0
		}), "False/Pending", "False/Pending"},
		"changed name": {func(v *table) {
			v.gateway("infra", "gw").Annotations = map[string]string{gatewaydeploy.NameOverride: "edge"}
		}, "False/Pending", "False/Pending"},
		"invalid parameters":       {recorded(gatewaydeploy.ReasonInvalidParameters), "False/Invalid", "False/Pending"},
		"invalid template":         {recorded(gatewaydeploy.ReasonInvalidTemplate), "False/InvalidTemplate", "False/Pending"},
		"unknown parameter":        {recorded(gatewaydeploy.ReasonUnknownParameter), "True/Programmed", "True/Programmed"},
		"not available":            {deployment(func(d *appsv1.Deployment) { d.Status.Conditions[0].Status = corev1.ConditionFalse }), "False/Pending", "False/Pending"},
		"progressing only":         {deployment(func(d *appsv1.Deployment) { d.Status.Conditions[0].Type = appsv1.DeploymentProgressing }), "False/Pending", "False/Pending"},
		"no Service":               {service(func(s *corev1.Service) { s.Labels = nil }), "False/Pending", "False/Pending"},
		"Service of another owner": {service(func(s *corev1.Service) { s.OwnerReferences = nil }), "False/Pending", "False/Pending"},
		"no address":               {service(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }), "False/AddressNotAssigned", "False/Pending"},
		"no port of a listener":    {service(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), "False/Pending", "False/Pending"},
		"parameters of another kind": {func(v *table) {
			v.gateway("infra", "gw").Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Group: "a", Kind: "B"}}
		}, "False/Invalid", "False/Pending"},
		"parameters of a ConfigMap": {func(v *table) {
			v.gateway("infra", "gw").Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap"}}
		}, "True/Programmed", "True/Programmed"},
		"requested address not assigned": {requesting("10.0.0.1"), "False/AddressNotUsable", "False/Pending"},
		"requested address assigned":     {requesting("127.0.0.9"), "True/Programmed", "True/Programmed"},
		"invalid address":                {requesting("::ffff:rubbish"), "False/AddressNotUsable", "False/Pending"},
		"requested address, hostname assigned": {func(v *table) {
			requesting("10.0.0.1")(v)
			v.services("infra", "gw")[0].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a.example"}}
		}, "False/AddressNotUsable", "False/Pending"},
		"two addresses": {requesting("127.0.0.9", "127.0.0.9"), "False/Invalid", "False/Pending"},
		"any hostname": {func(v *table) {
			kind := gateway.HostnameAddressType
			v.gateway("infra", "gw").Spec.Addresses = []gateway.GatewaySpecAddress{{Type: &kind}}
		}, "False/Invalid", "False/Pending"},
		"any address": {func(v *table) {
			v.gateway("infra", "gw").Spec.Addresses = []gateway.GatewaySpecAddress{{}}
		}, "True/Programmed", "True/Programmed"},
		"parameters of the class": {func(v *table) {
			v.class(reconcile.GatewayClass).Spec.ParametersRef = &gateway.ParametersReference{}
		}, "False/Invalid", "False/Pending"},
		"no listener valid": {func(v *table) {
			v.gateway("infra", "gw").Spec.Listeners[0] = *read[gateway.Listener](t, fmt.Sprintf(secure, "bad"))
		}, "False/Invalid", "False/Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			v := usual(t, newGateway(t, plain))
			test.change(v)
			status := gatewayStatus(v, v.gateway("infra", "gw"))
			if unsupported := stated(t, status.Conditions, gateway.GatewayConditionAccepted, 3) == "False/UnsupportedAddress"; unsupported && status.Addresses != nil {
				t.Errorf("addresses are %v", status.Addresses)
			}
			if got := stated(t, status.Conditions, gateway.GatewayConditionProgrammed, 3); got != test.gateway {
				t.Errorf("Gateway: %s, want %s", got, test.gateway)
			}
			if got := stated(t, status.Listeners[0].Conditions, gateway.ListenerConditionProgrammed, 3); got != test.listener {
				t.Errorf("listener: %s, want %s", got, test.listener)
			}
		})
	}
}

func TestAddressesOf(t *testing.T) {
	for name, test := range map[string]struct {
		service corev1.Service
		want    []string
	}{
		"none": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.0.0.1"}}}, nil},
		"of a load balancer": {corev1.Service{
			Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"1.2.3.4", "5.6.7.8"}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: "a.example"}, {IP: "1.2.3.4"}, {IP: "::1", Hostname: "b.example"}}}},
		}, []string{"Hostname a.example", "IPAddress 1.2.3.4", "IPAddress ::1", "Hostname b.example", "IPAddress 5.6.7.8"}},
		"of the cluster": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"10.0.0.1", "fd00::1"}}}, []string{"IPAddress 10.0.0.1", "IPAddress fd00::1"}},
		"headless":       {corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"None"}}}, nil},
	} {
		var got []string
		for _, a := range addressesOf(&test.service) {
			got = append(got, string(*a.Type)+" "+a.Value)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	many := corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for i := range maxAddresses + 1 {
		many.Spec.ExternalIPs = append(many.Spec.ExternalIPs, fmt.Sprintf("10.0.0.%d", i))
	}
	if got := len(addressesOf(&many)); got != maxAddresses {
		t.Errorf("%d addresses", got)
	}
}

func TestSameIP(t *testing.T) {
	if sameIP("a.example", "b.example") || sameIP("192.0.2.1", "b.example") || !sameIP("2001:db8::1", "2001:db8:0::1") {
		t.Error("wrong comparison of addresses")
	}
}

// recorded returns a change after which the deployment controller has recorded a problem.
func recorded(reason string) func(*table) {
	return func(v *table) {
		v.gateway("infra", "gw").Annotations = map[string]string{gatewaydeploy.ProblemAnnotation: reason + ": text"}
	}
}

func TestAcceptance_DeploymentProblem(t *testing.T) {
	for reason, want := range map[string]string{
		gatewaydeploy.ReasonInvalidParameters: "False/InvalidParameters", gatewaydeploy.ReasonUnknownParameter: "True/Accepted",
		gatewaydeploy.ReasonNotManaged: "True/Accepted",
	} {
		v := usual(t, newGateway(t, plain))
		recorded(reason)(v)
		g := keptGateway(v.gateway("infra", "gw"))
		got := gatewayStatus(v, g).Conditions[0]
		if stated(t, []metav1.Condition{got}, gateway.GatewayConditionAccepted, 3) != want || (got.Message == "text") != (reason != gatewaydeploy.ReasonNotManaged) {
			t.Errorf("%s: %+v, want %s", reason, got, want)
		}
	}
}

// requesting returns a change after which the Gateway requests addresses.
func requesting(values ...string) func(*table) {
	return func(v *table) {
		for _, value := range values {
			g := v.gateway("infra", "gw")
			g.Spec.Addresses = append(g.Spec.Addresses, gateway.GatewaySpecAddress{Value: value})
		}
	}
}

// The result does not depend on the order.
func TestOwned(t *testing.T) {
	of := func(name, owner string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: "x"}, {UID: "g"}}[:map[string]int{"x": 1, "g": 2}[owner]]}}
	}
	for override, want := range map[string]string{"": "gw-istio", "edge": "edge", "theirs": "", "none": ""} {
		g := newGateway(t)
		g.Annotations = map[string]string{gatewaydeploy.NameOverride: override, "other": "annotation"}
		g = keptGateway(g)
		if len(g.Annotations) != 1 {
			t.Errorf("kept annotations: %v", g.Annotations)
		}
		all := []*corev1.Service{of("a", "g"), of("gw-istio", "g"), of("edge", "g"), of("theirs", "x")}
		for range 2 {
			got := ""
			if found := owned(g, all); found != nil {
				got = found.Name
			}
			if got != want {
				t.Errorf("override %q: got %q, want %q", override, got, want)
			}
			slices.Reverse(all)
		}
	}
	if kept := keptGateway(newGateway(t)); kept.Annotations != nil {
		t.Errorf("without one, kept annotations: %v", kept.Annotations)
	}
}

func TestAttachments_CountRouteOnce(t *testing.T) {
	g := newGateway(t, plain)
	v := usual(t, g, newRoute(t, "infra", "{parentRefs: [{name: gw}, {name: gw, sectionName: http}, {name: gw, port: 81}]}"))
	other := newRoute(t, "infra", "{parentRefs: [{name: gw}]}")
	other.Name, other.Labels = "other", map[string]string{"istio.io/rev": "canary"} // has no effect
	elsewhere := newRoute(t, "infra", "{parentRefs: [{name: gw, sectionName: none}, {name: elsewhere}, {name: gw, kind: Service, group: ''}]}")
	elsewhere.Name = "elsewhere"
	v.objects = append(v.objects, other, elsewhere)
	if got := gatewayStatus(v, g).Listeners[0].AttachedRoutes; got != 2 {
		t.Errorf("%d routes are attached", got)
	}
}
