package main

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ingresses: those of the class get the addresses of the Service, and in this mode those without
// one do, too.
func ingresses(t *testing.T, w *world) {
	home := w.flags["namespace"]
	_, err := w.admin.CoreV1().Services(home).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "flag-gateway"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.77"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // the three flags are tried at once
		t.Fatal(err)
	}
	for _, class := range []string{"flag-class", "another", ""} {
		ingress := &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "by-flag-"},
			Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}},
		}
		if class != "" {
			ingress.Annotations = map[string]string{"kubernetes.io/ingress.class": class}
		}
		made, err := w.admin.NetworkingV1().Ingresses(home).Create(t.Context(), ingress, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		has := func() bool {
			now, err := w.admin.NetworkingV1().Ingresses(home).Get(t.Context(), made.Name, metav1.GetOptions{})
			return err == nil && len(now.Status.LoadBalancer.Ingress) == 1 && now.Status.LoadBalancer.Ingress[0].IP == "192.0.2.77"
		}
		if class == "another" { // whose turn comes before the next one's
			defer func() {
				if has() {
					t.Error("one of another class has a status")
				}
			}()
			continue
		}
		await(t, "the Ingress of class "+strconv.Quote(class)+" has its status", has)
	}
}
