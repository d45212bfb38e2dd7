package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/upgrade/workload"
)

// concurrently is the number of objects that are created concurrently.
const concurrently = 16

// size is the number of objects in the cluster, from the environment.
type size struct{ namespaces, ingresses, gateways int }

func sizeOf(b *testing.B) size {
	b.Helper()
	number := func(name string, otherwise int) int {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("%s=%q must be a positive number", name, text)
		}
		return n
	}
	return size{number("BENCH_NAMESPACES", 200), number("BENCH_INGRESSES", 100), number("BENCH_GATEWAYS", 50)}
}

// world is a cluster with the namespace of a control plane and user objects.
type world struct {
	testing.TB
	cluster  *cluster.Cluster
	home     string
	program  string
	bundle   string
	admin    kubernetes.Interface
	gateways versioned.GatewayV1Interface
	audit    *audit
}

func newWorld(b testing.TB, program string) *world {
	b.Helper()
	c := cluster.Own(b, cluster.Options{
		WithoutControllers: true, Audit: true, AuditPolicy: auditPolicy,
		APIServerArgs: []string{"--service-cluster-ip-range=10.96.0.0/16"}, // each Gateway has a Service
	})
	w := &world{TB: b, cluster: c, program: program, home: c.Namespace(b), bundle: filepath.Join(b.TempDir(), "bundle.pem")}
	config := c.Admin()
	config.WarningHandler = rest.NoWarnings{} // each Ingress's annotation would be one
	connections, err := rest.HTTPClientFor(config)
	harness.Must(w.TB, err)
	b.Cleanup(connections.CloseIdleConnections)
	w.admin, err = kubernetes.NewForConfigAndClient(config, connections)
	harness.Must(w.TB, err)
	w.gateways, err = versioned.NewForConfigAndClient(config, connections)
	harness.Must(w.TB, err)
	harness.Must(w.TB, c.LoadGatewayAPI(b.Context()))
	harness.Must(w.TB, os.WriteFile(w.bundle, certs.CA(b), 0o600))
	service, err := w.admin.CoreV1().Services(w.home).Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-ingressgateway"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	harness.Must(w.TB, err)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	_, err = w.admin.CoreV1().Services(w.home).UpdateStatus(b.Context(), service, metav1.UpdateOptions{})
	harness.Must(w.TB, err)
	w.audit = openAudit(b, c.AuditLog())
	return w
}

// populate creates user objects in all namespaces.
func (w *world) populate(n size) {
	w.Helper()
	w.create(n.namespaces, func(i int) error { return w.namespace(space(i)) })
	w.create(n.ingresses, func(i int) error { return w.ingress(space(i%n.namespaces), fmt.Sprint("web-", i)) })
	w.create(n.gateways, func(i int) error { return w.gateway(space(i%n.namespaces), fmt.Sprint("gw-", i)) })
}

// fresh creates one object for each controller in a new namespace.
func (w *world) fresh(name string) {
	w.Helper()
	harness.Must(w.TB, w.namespace(name))
	harness.Must(w.TB, w.ingress(name, name))
	harness.Must(w.TB, w.gateway(name, name))
}

func space(i int) string { return fmt.Sprint("space-", i) }

// create calls do for each number below n, concurrently.
func (w *world) create(n int, do func(i int) error) {
	w.Helper()
	errs := make([]error, n)
	workqueue.ParallelizeUntil(w.Context(), concurrently, n, func(i int) { errs[i] = do(i) })
	harness.Must(w.TB, errors.Join(errs...))
}

func (w *world) namespace(name string) error {
	_, err := w.admin.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio.io/rev": revision}},
	}, metav1.CreateOptions{})
	return err
}

func (w *world) ingress(namespace, name string) error {
	class, prefix := "istio", networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	_, err := w.admin.NetworkingV1().Ingresses(namespace).Create(w.Context(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kubernetes.io/ingress.class": class}},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: name + ".example", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}}},
		}}}},
	}, metav1.CreateOptions{})
	return err
}

func (w *world) gateway(namespace, name string) error {
	_, err := w.gateways.Gateways(namespace).Create(w.Context(), workload.Gateway(metav1.ObjectMeta{Name: name}, ""), metav1.CreateOptions{})
	return err
}
