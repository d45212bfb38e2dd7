package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

// createIngress creates the Service of the gateway, and in home an Ingress of the class istio.
func createIngress(t *testing.T, admin kube.Client, home string, gateway types.NamespacedName) {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: gateway.Name},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := admin.Kube().CoreV1().Services(gateway.Namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"kubernetes.io/ingress.class": "istio"}},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}
	if _, err := admin.Kube().NetworkingV1().Ingresses(home).Create(t.Context(), ingress, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitAddress waits until the Ingress in home has the address of the Service.
func awaitAddress(t *testing.T, admin kube.Client, home string) {
	t.Helper()
	await(t, "the Ingress has its status", func() bool {
		ingress, err := admin.Kube().NetworkingV1().Ingresses(home).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && len(ingress.Status.LoadBalancer.Ingress) == 1 && ingress.Status.LoadBalancer.Ingress[0].IP == "192.0.2.1"
	})
}

// The Service of the gateway can be in another namespace, where the server has only the permissions of the chart for it.
func TestServer_IngressGatewayElsewhere(t *testing.T) {
	c := cluster.Shared(t)
	admin, home, gateway, content := c.Client(t), c.Namespace(t), c.Namespace(t), certificate(t)
	createIngress(t, admin, home, types.NamespacedName{Namespace: gateway, Name: "front"})
	rules := access.Of(t, "an ingress gateway elsewhere", home, "stable")
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: "pilot"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pilot"}, Rules: rules.Ingress}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{account}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
	if _, err := admin.Kube().RbacV1().Roles(gateway).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Kube().RbacV1().RoleBindings(gateway).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := c.Identity(t, cluster.IdentityOptions{Namespace: home, PodName: "one", ServiceAccount: "pilot", Rules: rules.Namespace, ClusterRules: rules.Cluster})
	r := serve(t, config, home, "one", "stable", bundleFile(t, content), func(config *bootstrap.Config) {
		config.IngressMode, config.IngressService = "", gateway+"/front"
	})
	awaitAddress(t, admin, home)
	r.End()
	if n := r.Log.Count("forbidden"); n > 0 {
		t.Errorf("%d requests forbidden:\n%s", n, r.Log)
	}
}

// Without elections all controllers run until the server ends, with permissions that do not include locks.
func TestServer_WithoutElections(t *testing.T) {
	c := cluster.Shared(t)
	admin, home, content := c.Client(t), c.Namespace(t), certificate(t)
	harness.Must(t, c.LoadGatewayAPI(t.Context()))
	alone := bootstrap.Config{Config: leaderelection.Config{Disabled: true}}
	if shared, perRevision := bootstrap.Elections(alone); len(shared)+len(perRevision) > 0 {
		t.Errorf("elections: %q and %q", shared, perRevision)
	}
	alone.Namespace = home
	config := servers.Identity(t, c, alone, "single", "single")
	createIngress(t, admin, home, types.NamespacedName{Namespace: home, Name: "istio-ingressgateway"})
	r := serve(t, config, home, "single", "stable", bundleFile(t, content), func(config *bootstrap.Config) {
		config.Disabled, config.IngressMode, config.DisableGatewayAPI = true, "", false
	})
	shared, perRevision := bootstrap.Elections(bootstrap.Config{})
	rows := len(shared) + len(perRevision)
	await(t, "all controllers run", func() bool { return r.Log.Count("run function started") == rows })
	carries(t, admin, home, content)
	awaitAddress(t, admin, home)
	r.End()
	if n := r.Log.Count("run function ended"); n != rows {
		t.Errorf("%d of %d controllers have ended", n, rows)
	}
	for _, lock := range slices.Concat(shared, perRevision, []string{"/leases"}) {
		if n := r.Sent.Count(lock); n > 0 {
			t.Errorf("%d requests for %s:\n%s", n, lock, r.Sent)
		}
	}
	if n := r.Log.Count("forbidden"); n > 0 {
		t.Errorf("%d requests forbidden", n)
	}
}
