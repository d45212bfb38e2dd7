package ingress

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// Istio's rule, whole: each mode with each annotation and each IngressClass. A revision's label
// plays no part.
func TestClass(t *testing.T) {
	all, strict, none := []Mode{Strict, Default}, []Mode{Strict, Default}, []Mode(nil)
	theirs := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}}
	mine := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "istio.io/ingress-controller"}}
	annotated := func(class string) map[string]string { return map[string]string{"kubernetes.io/ingress.class": class} }
	for name, test := range map[string]struct {
		annotations map[string]string
		named       *networkingv1.IngressClass // nil: none, or one that does not exist
		modes       []Mode                     // in which it is ours
	}{
		"our annotation":                           {annotated("istio"), nil, all},
		"our annotation, their IngressClass":       {annotated("istio"), theirs, all},
		"another annotation":                       {annotated("nginx"), nil, none},
		"another annotation, our IngressClass":     {annotated("nginx"), mine, none},
		"an empty annotation":                      {annotated(""), nil, none},
		"an empty annotation, our IngressClass":    {annotated(""), mine, none},
		"our class in other letters":               {annotated("Istio"), nil, none},
		"our IngressClass":                         {nil, mine, strict},
		"their IngressClass":                       {nil, theirs, none},
		"neither, or an IngressClass that is none": {nil, nil, []Mode{Default}},
		"another's annotations":                    {map[string]string{"class": "istio"}, nil, []Mode{Default}},
	} {
		for _, mode := range []Mode{Off, Strict, Default} {
			for _, revision := range []string{"", "canary"} {
				i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations, Labels: map[string]string{"istio.io/rev": revision}}}
				if got, want := ours(mode, "istio", i, test.named), slices.Contains(test.modes, mode); got != want {
					t.Errorf("%s, %s, of revision %q: %v, want %v", name, mode, revision, got, want)
				}
			}
		}
	}
}

func ip(text string, ports ...networkingv1.IngressPortStatus) address {
	return address{IP: text, Ports: ports}
}

func host(text string) address { return address{Hostname: text} }

func balanced(ingress ...corev1.LoadBalancerIngress) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = ingress }
}

func runningPod(node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "gateway", "more": "1"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// An Ingress is told that its class is unknown where that is why it gets no status.
func TestUnknownClass(t *testing.T) {
	name, mine := "later", &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}
	for what, test := range map[string]struct {
		mode      Mode
		annotated bool
		class     *string
		named     *networkingv1.IngressClass
		want      bool
	}{
		"one that does not exist":                  {Strict, false, &name, nil, true},
		"one that exists":                          {Strict, false, &name, mine, false},
		"none":                                     {Strict, false, nil, nil, false},
		"one that does not exist, by annotation":   {Strict, true, &name, nil, false},
		"one that does not exist, in mode DEFAULT": {Default, false, &name, nil, false},
		"one that does not exist, in mode OFF":     {Off, false, &name, nil, false},
	} {
		i := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: test.class}}
		if test.annotated {
			i.Annotations = map[string]string{classAnnotation: ""}
		}
		if got := unknownClass(test.mode, i, test.named); (got != nil) != test.want || got != nil && (got.Reason != ReasonUnknownClass || !strings.Contains(got.Message, name)) {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	why := "it is taken"
	now := metav1.Now()
	nodes := map[string][]corev1.NodeAddress{
		"one": {
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.9"},
			{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalDNS, Address: "one.example"},
		},
		"two":     {{Type: corev1.NodeExternalIP, Address: "192.0.2.5"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}},
		"private": {{Type: corev1.NodeInternalIP, Address: "10.0.0.3"}},
		"odd":     {{Type: corev1.NodeExternalIP, Address: "outside"}, {Type: corev1.NodeExternalIP}},
	}
	both := []*corev1.Pod{runningPod("two"), runningPod("one")}
	for name, test := range map[string]struct {
		service func(*corev1.Service)
		pods    []*corev1.Pod
		want    []address
	}{
		"nothing": {},
		"external name": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "gateway.example."
				s.Spec.ExternalIPs = []string{"192.0.2.1"}
			}, both, []address{host("gateway.example")},
		},
		"external name that is an IP": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "192.0.2.1"
			}, nil, []address{ip("192.0.2.1")},
		},
		"external name of one that had another type": {func(s *corev1.Service) { s.Spec.ExternalName = "old.example" }, nil, nil},
		"IP": {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1"}), both, []address{ip("192.0.2.1")}},
		"host name": {balanced(corev1.LoadBalancerIngress{Hostname: "b.example"}, corev1.LoadBalancerIngress{Hostname: "a.example"}), both,
			[]address{host("a.example"), host("b.example")}},
		"both of one": {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1", Hostname: "a.example"}), nil, []address{{IP: "192.0.2.1", Hostname: "a.example"}}},
		"sorted, each once": {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.2"}, corev1.LoadBalancerIngress{IP: "192.0.2.1"}, corev1.LoadBalancerIngress{IP: "192.0.2.2"}), nil,
			[]address{ip("192.0.2.1"), ip("192.0.2.2")}},
		"an IP in two writings": {balanced(corev1.LoadBalancerIngress{IP: "2001:db8::1"}, corev1.LoadBalancerIngress{IP: "2001:DB8:0::1"}), nil, []address{ip("2001:db8::1")}},
		"ports": {
			balanced(
				corev1.LoadBalancerIngress{IP: "192.0.2.1", Ports: []corev1.PortStatus{{Port: 443, Protocol: "TCP", Error: &why}, {Port: 80, Protocol: "UDP"}}},
				corev1.LoadBalancerIngress{IP: "192.0.2.1", Ports: []corev1.PortStatus{{Port: 80, Protocol: "TCP"}, {Port: 443, Protocol: "TCP"}}},
			), nil,
			[]address{ip("192.0.2.1", networkingv1.IngressPortStatus{Port: 80, Protocol: "TCP"}, networkingv1.IngressPortStatus{Port: 80, Protocol: "UDP"},
				networkingv1.IngressPortStatus{Port: 443, Protocol: "TCP", Error: &why})},
		},
		"external IPs beside them": {
			func(s *corev1.Service) {
				balanced(corev1.LoadBalancerIngress{IP: "192.0.2.7"}, corev1.LoadBalancerIngress{Hostname: "a.example"})(s)
				s.Spec.ExternalIPs = []string{"192.0.2.7", "192.0.2.1"}
			}, both, []address{host("a.example"), ip("192.0.2.1"), ip("192.0.2.7")},
		},
		"external IPs alone":           {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.8"} }, both, []address{ip("192.0.2.8")}},
		"what is no address":           {balanced(corev1.LoadBalancerIngress{}, corev1.LoadBalancerIngress{IP: "010.0.0.1"}), nil, nil},
		"nodes, all, with all of each": {nil, both, []address{ip("192.0.2.1"), ip("192.0.2.5"), ip("192.0.2.9")}},
		"nodes without an address":     {nil, []*corev1.Pod{runningPod("private"), runningPod("odd")}, nil},
		"nodes that are gone":          {nil, []*corev1.Pod{runningPod("gone"), runningPod(""), runningPod("two")}, []address{ip("192.0.2.1"), ip("192.0.2.5")}},
		"pods that do not run": {nil, []*corev1.Pod{
			runningPod("one", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), runningPod("one", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			runningPod("one", func(p *corev1.Pod) { p.DeletionTimestamp = &now }), runningPod("one", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }),
		}, nil},
		"a Service without a selector": {func(s *corev1.Service) { s.Spec.Selector = nil }, both, nil},
	} {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "gateway"}}}
		if test.service != nil {
			test.service(s)
		}
		before := s.DeepCopy()
		got := addressesOf(s, test.pods, func(name string) *corev1.Node {
			if a, ok := nodes[name]; ok {
				return &corev1.Node{Status: corev1.NodeStatus{Addresses: a}}
			}
			return nil
		})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if !reflect.DeepEqual(s, before) {
			t.Errorf("%s: the Service of the cache was changed", name)
		}
	}
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	good := Config{Mode: "Strict", Class: "istio", Service: key{Namespace: "istio-system", Name: "istio-ingressgateway"}}
	_, err = New(client, Config{Mode: "sometimes", Service: key{Namespace: "No_Space", Name: "9"}, Workers: -1})
	for _, want := range []string{"ingress controller: ", `"sometimes" is none of OFF, STRICT, DEFAULT`, "class is empty", `"No_Space"`, `service "9"`, "-1 workers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if _, err := New(nil, good); err == nil || !strings.Contains(err.Error(), "ingress controller: ") || !strings.Contains(err.Error(), "no client") {
		t.Errorf("made without a client: %v", err)
	}
	c, err := New(client, good)
	if err != nil {
		t.Fatal(err)
	}
	if c.config.Mode != Strict || c.config.Logger != slog.Default() {
		t.Errorf("it became %+v", c.config)
	}
}

func TestModesAreReadInAnyCase(t *testing.T) {
	for text, want := range map[string]Mode{"off": Off, "Strict": Strict, "DEFAULT": Default, "": "", "none": ""} {
		if got, err := ParseMode(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

// What is kept of an object is what is looked at, and its changes alone count.
func TestSlim(t *testing.T) {
	class := "c"
	meta := metav1.ObjectMeta{
		Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7", Annotations: map[string]string{"other": "1", classAnnotation: "istio"},
		Labels: map[string]string{"app": "gateway"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}
	kept := metav1.ObjectMeta{Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7"}
	annotated, labelled := kept, kept
	annotated.Annotations, labelled.Labels = map[string]string{classAnnotation: "istio"}, meta.Labels
	balancer := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}
	external := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}
	status := networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []address{ip("192.0.2.1")}}}
	for name, test := range map[string]struct{ got, want any }{
		"Ingress": {
			slimIngress(&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{}}}, Status: status}),
			&networkingv1.Ingress{ObjectMeta: annotated, Spec: networkingv1.IngressSpec{IngressClassName: &class}, Status: status},
		},
		"Ingress without the annotation": {slimIngress(&networkingv1.Ingress{ObjectMeta: labelled}), &networkingv1.Ingress{ObjectMeta: kept}},
		"IngressClass": {
			slimClass(&networkingv1.IngressClass{ObjectMeta: meta, Spec: networkingv1.IngressClassSpec{Controller: "x", Parameters: &networkingv1.IngressClassParametersReference{}}}),
			&networkingv1.IngressClass{ObjectMeta: kept, Spec: networkingv1.IngressClassSpec{Controller: "x"}},
		},
		"Service": {
			slimService(&corev1.Service{
				ObjectMeta: meta, Status: corev1.ServiceStatus{LoadBalancer: balancer, Conditions: []metav1.Condition{{}}},
				Spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "e", ExternalIPs: []string{"1"}, Selector: meta.Labels, ClusterIP: "2"},
			}),
			&corev1.Service{
				ObjectMeta: kept, Status: corev1.ServiceStatus{LoadBalancer: balancer},
				Spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "e", ExternalIPs: []string{"1"}, Selector: meta.Labels},
			},
		},
		"Pod": {
			slimPod(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "x", ServiceAccountName: "y"}, Status: corev1.PodStatus{Phase: "Running", PodIP: "1"}}),
			&corev1.Pod{ObjectMeta: labelled, Spec: corev1.PodSpec{NodeName: "x"}, Status: corev1.PodStatus{Phase: "Running"}},
		},
		"Node": {
			slimNode(&corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{ProviderID: "x"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "1"}, external}}}),
			&corev1.Node{ObjectMeta: kept, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{external}}},
		},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s: kept %+v, want %+v", name, test.got, test.want)
		}
	}
}
