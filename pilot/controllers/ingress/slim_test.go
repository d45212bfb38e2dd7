package ingress

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
