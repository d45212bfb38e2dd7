package ingress

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// These functions keep only the fields that the controller reads.

func slimIngress(i *networkingv1.Ingress) *networkingv1.Ingress {
	slim := &networkingv1.Ingress{
		ObjectMeta: reconcile.Meta(i.ObjectMeta), Spec: networkingv1.IngressSpec{IngressClassName: i.Spec.IngressClassName}, Status: i.Status,
	}
	if class, ok := i.Annotations[classAnnotation]; ok {
		slim.Annotations = map[string]string{classAnnotation: class}
	}
	return slim
}

func slimClass(c *networkingv1.IngressClass) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{ObjectMeta: reconcile.Meta(c.ObjectMeta), Spec: networkingv1.IngressClassSpec{Controller: c.Spec.Controller}}
}

func slimService(s *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: reconcile.Meta(s.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type: s.Spec.Type, ExternalName: s.Spec.ExternalName, ExternalIPs: s.Spec.ExternalIPs, Selector: s.Spec.Selector,
		},
		Status: corev1.ServiceStatus{LoadBalancer: s.Status.LoadBalancer},
	}
}

func slimPod(p *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{
		ObjectMeta: reconcile.Meta(p.ObjectMeta), Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}, Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	slim.Labels = p.Labels
	return slim
}

func slimNode(n *corev1.Node) *corev1.Node {
	slim := &corev1.Node{ObjectMeta: reconcile.Meta(n.ObjectMeta)}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeExternalIP {
			slim.Status.Addresses = append(slim.Status.Addresses, a)
		}
	}
	return slim
}
