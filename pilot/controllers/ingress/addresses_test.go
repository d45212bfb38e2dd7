package ingress

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

func TestAddresses(t *testing.T) {
	why := "port is in use"
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
		"external name is an IP": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "192.0.2.1"
			}, nil, []address{ip("192.0.2.1")},
		},
		"external name with another type": {func(s *corev1.Service) { s.Spec.ExternalName = "old.example" }, nil, nil},
		"IP":                              {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1"}), both, []address{ip("192.0.2.1")}},
		"host name": {balanced(corev1.LoadBalancerIngress{Hostname: "b.example"}, corev1.LoadBalancerIngress{Hostname: "a.example"}), both,
			[]address{host("a.example"), host("b.example")}},
		"IP and host name": {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1", Hostname: "a.example"}), nil, []address{{IP: "192.0.2.1", Hostname: "a.example"}}},
		"sorted, without duplicates": {balanced(corev1.LoadBalancerIngress{IP: "192.0.2.2"}, corev1.LoadBalancerIngress{IP: "192.0.2.1"}, corev1.LoadBalancerIngress{IP: "192.0.2.2"}), nil,
			[]address{ip("192.0.2.1"), ip("192.0.2.2")}},
		"IP in two notations": {balanced(corev1.LoadBalancerIngress{IP: "2001:db8::1"}, corev1.LoadBalancerIngress{IP: "2001:DB8:0::1"}), nil, []address{ip("2001:db8::1")}},
		"ports": {
			balanced(
				corev1.LoadBalancerIngress{IP: "192.0.2.1", Ports: []corev1.PortStatus{{Port: 443, Protocol: "TCP", Error: &why}, {Port: 80, Protocol: "UDP"}}},
				corev1.LoadBalancerIngress{IP: "192.0.2.1", Ports: []corev1.PortStatus{{Port: 80, Protocol: "TCP"}, {Port: 443, Protocol: "TCP"}}},
			), nil,
			[]address{ip("192.0.2.1", networkingv1.IngressPortStatus{Port: 80, Protocol: "TCP"}, networkingv1.IngressPortStatus{Port: 80, Protocol: "UDP"},
				networkingv1.IngressPortStatus{Port: 443, Protocol: "TCP", Error: &why})},
		},
		"external IPs and load balancer": {
			func(s *corev1.Service) {
				balanced(corev1.LoadBalancerIngress{IP: "192.0.2.7"}, corev1.LoadBalancerIngress{Hostname: "a.example"})(s)
				s.Spec.ExternalIPs = []string{"192.0.2.7", "192.0.2.1"}
			}, both, []address{host("a.example"), ip("192.0.2.1"), ip("192.0.2.7")},
		},
		"external IPs only":            {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.8"} }, both, []address{ip("192.0.2.8")}},
		"invalid addresses":            {balanced(corev1.LoadBalancerIngress{}, corev1.LoadBalancerIngress{IP: "010.0.0.1"}), nil, nil},
		"nodes with several addresses": {nil, both, []address{ip("192.0.2.1"), ip("192.0.2.5"), ip("192.0.2.9")}},
		"nodes without an address":     {nil, []*corev1.Pod{runningPod("private"), runningPod("odd")}, nil},
		"missing nodes":                {nil, []*corev1.Pod{runningPod("gone"), runningPod(""), runningPod("two")}, []address{ip("192.0.2.1"), ip("192.0.2.5")}},
		"pods that are not running": {nil, []*corev1.Pod{
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
			t.Errorf("%s: the cached Service was changed", name)
		}
	}
}
