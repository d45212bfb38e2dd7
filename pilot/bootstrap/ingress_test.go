package bootstrap

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// ingressHasItsEffect runs the row of the server's table, with the manifests' rights: the Ingress of
// the class has the Service's address, in whatever mode those two say; and with OFF there is no row,
// and there are no rights.
func ingressHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.IngressMode, config.IngressClass, config.IngressService = "default", "a-class", "a-gateway"
	e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: "b", ServiceAccount: "pilot", ClusterRules: manifests.ClusterRules(Rights(config)),
		Rules: manifests.NamespaceRules(Rights(config)),
	})
	core, ctx := e.admin.Kube(), t.Context()
	if _, err := core.CoreV1().Services(e.home).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a-gateway"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.5"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	start(t, config, table[1:2]).leads(t)
	for name, annotations := range map[string]map[string]string{"annotated": {"kubernetes.io/ingress.class": "a-class"}, "classless": nil} {
		if _, err := core.NetworkingV1().Ingresses(e.home).Create(ctx, &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		await(t, "the Ingress has its status", func() bool {
			i, err := core.NetworkingV1().Ingresses(e.home).Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(i.Status.LoadBalancer.Ingress) == 1 && i.Status.LoadBalancer.Ingress[0].IP == "192.0.2.5"
		})
	}
	off := Config{IngressMode: "off", DisableGatewayAPI: true}
	if shared, _ := Elections(off); !slices.Equal(shared, []string{leaderelection.NamespaceController}) {
		t.Errorf("without it the elections are %q", shared)
	}
	only, lock := namespaceRights(off), []string{leaderelection.NamespaceController}
	only.ConfigMaps, only.Leases, only.Home = lock, lock, memberRights().Home
	if rights := Rights(off); !reflect.DeepEqual(rights, only) {
		t.Errorf("without it the rights are %v", rights)
	}
	if s, err := New(Config{
		IngressMode: "off", DisableGatewayAPI: true, RESTConfig: config.RESTConfig, Namespace: e.home, Identity: "b", Address: ":0", CABundle: "/no/such/file",
	}); err != nil || len(s.jobs) != 1 {
		t.Errorf("without it a server has another number of jobs than one: %v", err)
	}
}
