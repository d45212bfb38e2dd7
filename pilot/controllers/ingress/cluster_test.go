package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// environment is a namespace of the shared cluster for a controller and its objects. Its tests are
// not parallel, because an IngressClass is not namespaced.
type environment struct {
	*testing.T
	cluster *cluster.Cluster
	admin   kube.Client
	home    string
	class   string
	log     harness.Log
	events  events
	sent    requests
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	c := cluster.Shared(t)
	e := &environment{T: t, cluster: c, admin: c.Client(t), home: c.Namespace(t)}
	e.class = e.home
	return e
}

// rights returns the permissions of the controller.
func rights() (home, everywhere []rbacv1.PolicyRule) {
	read := []string{"list", "watch"}
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services", "pods"}, Verbs: read}},
		[]rbacv1.PolicyRule{
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "ingressclasses"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"patch"}},
		}
}

// identity returns a client configuration whose requests are recorded.
func (e *environment) identity() *rest.Config {
	e.Helper()
	home, everywhere := rights()
	config := e.cluster.Identity(e.T, cluster.IdentityOptions{Namespace: e.home, PodName: "controller", ServiceAccount: "controller", Rules: home, ClusterRules: everywhere})
	config.Wrap(e.sent.through)
	return config
}

func (e *environment) controller(config *rest.Config) *Controller {
	e.Helper()
	client := cluster.ClientFor(e, config)
	c, err := New(client, Config{
		Mode: Strict, Class: e.class, Service: key{Namespace: e.home, Name: "gateway"}, Event: e.events.Eventf, Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
	})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(c.Close)
	return c
}

// run runs a controller until end is called or the test ends.
func (e *environment) run(c *Controller) (end func()) {
	ctx, cancel := context.WithCancel(e.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			e.Error(err)
		}
	}()
	end = func() {
		cancel()
		<-ended
	}
	e.Cleanup(end)
	return end
}

func check[T any](e *environment) func(T, error) T {
	return func(got T, err error) T {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
		return got
	}
}

func (e *environment) ingress(name string, change func(*networkingv1.Ingress)) {
	e.Helper()
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"theirs": "1", classAnnotation: e.class}, Labels: map[string]string{"theirs": "2"}},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}
	if change != nil {
		change(i)
	}
	check[*networkingv1.Ingress](e)(e.admin.Kube().NetworkingV1().Ingresses(e.home).Create(e.Context(), i, metav1.CreateOptions{}))
}

func (e *environment) get(name string) *networkingv1.Ingress {
	e.Helper()
	return check[*networkingv1.Ingress](e)(e.admin.Kube().NetworkingV1().Ingresses(e.home).Get(e.Context(), name, metav1.GetOptions{}))
}

// change updates an Ingress as another client.
func (e *environment) change(name string, change func(*networkingv1.Ingress)) {
	e.Helper()
	i := e.get(name)
	change(i)
	check[*networkingv1.Ingress](e)(e.admin.Kube().NetworkingV1().Ingresses(e.home).Update(e.Context(), i, metav1.UpdateOptions{}))
}

// service creates the Service with this load balancer status.
func (e *environment) service(ingress ...corev1.LoadBalancerIngress) {
	e.Helper()
	services := e.admin.Kube().CoreV1().Services(e.home)
	s := check[*corev1.Service](e)(services.Create(e.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "gateway"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}))
	s.Status.LoadBalancer.Ingress = ingress
	check[*corev1.Service](e)(services.UpdateStatus(e.Context(), s, metav1.UpdateOptions{}))
}

func (e *environment) balance(ingress ...corev1.LoadBalancerIngress) {
	e.Helper()
	services := e.admin.Kube().CoreV1().Services(e.home)
	s := check[*corev1.Service](e)(services.Get(e.Context(), "gateway", metav1.GetOptions{}))
	s.Status.LoadBalancer.Ingress = ingress
	check[*corev1.Service](e)(services.UpdateStatus(e.Context(), s, metav1.UpdateOptions{}))
}

func (e *environment) has(name string, want ...address) bool {
	e.Helper()
	got := e.get(name).Status.LoadBalancer.Ingress
	return len(got) == 0 && len(want) == 0 || reflect.DeepEqual(got, want)
}

func (e *environment) awaitStatus(want []address, names ...string) {
	e.Helper()
	for _, name := range names {
		await(e.T, fmt.Sprintf("Ingress %s has %v", name, want), func() bool { return e.has(name, want...) })
	}
}

// requests records writes before they are sent.
type requests struct {
	mu     sync.Mutex
	all    []string
	before func() // each write
}

func (r *requests) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodGet {
			r.mu.Lock()
			r.all = append(r.all, req.Method+" "+req.URL.Path)
			before := r.before
			r.mu.Unlock()
			if before != nil {
				before()
			}
		}
		return next.RoundTrip(req)
	})
}

func (r *requests) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

var await = harness.Until

// Each Ingress of the class follows the addresses of the Service, with one write for each change.
func TestStatus_FollowsService(t *testing.T) {
	e := newEnvironment(t)
	classes := e.admin.Kube().NetworkingV1().IngressClasses()
	for name, controller := range map[string]string{"mine": ControllerName, "theirs": "k8s.io/ingress-nginx"} {
		check[*networkingv1.IngressClass](e)(classes.Create(t.Context(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: e.home + name, Labels: map[string]string{"of": e.home}}, Spec: networkingv1.IngressClassSpec{Controller: controller},
		}, metav1.CreateOptions{}))
	}
	t.Cleanup(func() { // they would affect the next test
		ours := metav1.ListOptions{LabelSelector: "of=" + e.home}
		if err := classes.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, ours); err != nil {
			t.Error(err)
		}
	})
	named := func(class string) func(*networkingv1.Ingress) {
		return func(i *networkingv1.Ingress) {
			delete(i.Annotations, classAnnotation)
			i.Spec.IngressClassName = &class
		}
	}
	e.ingress("annotated", nil)
	e.ingress("canary", func(i *networkingv1.Ingress) { i.Labels["istio.io/rev"] = "canary" })
	e.ingress("named", named(e.home+"mine"))
	e.ingress("foreign", named(e.home+"theirs"))
	e.ingress("unknown", named(e.home+"later"))
	e.ingress("classless", func(i *networkingv1.Ingress) { delete(i.Annotations, classAnnotation) })
	e.service(corev1.LoadBalancerIngress{Hostname: "b.example"}, corev1.LoadBalancerIngress{IP: "192.0.2.2"}, corev1.LoadBalancerIngress{IP: "192.0.2.1"})

	c := e.controller(e.identity())
	if err := c.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := e.sent.count(); n != 0 {
		t.Errorf("%d writes before Run", n)
	}
	end := e.run(c)
	mine := []string{"annotated", "canary", "named"}
	writes := 0
	step := func(want ...address) {
		t.Helper()
		e.awaitStatus(want, mine...)
		writes += len(mine)
		if n := e.sent.count(); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	step(host("b.example"), ip("192.0.2.1"), ip("192.0.2.2"))
	await(t, "an Event reports the unknown class", func() bool { return len(e.events.list()) > 0 })
	port := corev1.PortStatus{Port: 80, Protocol: "TCP"}
	e.balance(corev1.LoadBalancerIngress{IP: "192.0.2.3", Ports: []corev1.PortStatus{port}})
	step(ip("192.0.2.3", networkingv1.IngressPortStatus{Port: 80, Protocol: "TCP"}))
	e.balance()
	step()
	e.patchService(`{"spec":{"externalIPs":["192.0.2.4"]}}`)
	step(ip("192.0.2.4"))
	e.patchService(`{"spec":{"externalIPs":null}}`)
	step()
	e.runGateway("one", "192.0.2.11", "192.0.2.10")
	step(ip("192.0.2.10"), ip("192.0.2.11"))
	e.runGateway("two", "192.0.2.12", "192.0.2.10")
	step(ip("192.0.2.10"), ip("192.0.2.11"), ip("192.0.2.12"))
	e.patchService(`{"spec":{"type":"ExternalName","externalName":"gateway.example"}}`)
	step(host("gateway.example"))

	// A new class takes effect. An Ingress that leaves the class keeps its status.
	check[*networkingv1.IngressClass](e)(classes.Create(t.Context(), &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: e.home + "later", Labels: map[string]string{"of": e.home}}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName},
	}, metav1.CreateOptions{}))
	e.awaitStatus([]address{host("gateway.example")}, "unknown")
	if got := e.events.list(); len(got) != 1 || !strings.HasPrefix(got[0], "unknown Warning UnknownClass IngressClass "+e.home+"later does not exist") {
		t.Errorf("Events: %q", got)
	}
	e.change("canary", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = "nginx" })
	e.patchService(`{"spec":{"externalName":"new.example"}}`)
	e.awaitStatus([]address{host("new.example")}, "annotated", "named", "unknown")
	e.awaitStatus([]address{host("gateway.example")}, "canary")
	e.awaitStatus(nil, "foreign", "classless")
	writes += 4
	if i := e.get("named"); i.Labels["theirs"] != "2" || i.Annotations["theirs"] != "1" || i.Spec.DefaultBackend == nil {
		t.Errorf("content of other writers is lost: %v", i)
	}
	end()
	// The next leader has nothing to write.
	e.run(c)
	e.ingress("last", nil)
	e.awaitStatus([]address{host("new.example")}, "last")
	if n := e.sent.count(); n != writes+1 {
		t.Errorf("%d writes, want %d: %q", n, writes+1, e.sent.all)
	}
}

func (e *environment) patchService(patch string) {
	e.Helper()
	check[*corev1.Service](e)(e.admin.Kube().CoreV1().Services(e.home).Patch(e.Context(), "gateway", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// runGateway creates a node with these addresses and a running gateway pod on it.
func (e *environment) runGateway(node string, addresses ...string) {
	e.Helper()
	core, ctx := e.admin.Kube().CoreV1(), e.Context()
	n := check[*corev1.Node](e)(core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.home + node}}, metav1.CreateOptions{}))
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	check[*corev1.Node](e)(core.Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}))
	p := check[*corev1.Pod](e)(core.Pods(e.home).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway-" + node, Labels: map[string]string{"app": "gateway"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "controller", NodeName: n.Name, Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}}},
	}, metav1.CreateOptions{}))
	p.Status.Phase = corev1.PodRunning
	check[*corev1.Pod](e)(core.Pods(e.home).UpdateStatus(ctx, p, metav1.UpdateOptions{}))
}

// A status that was computed from an old version is not written: the Ingress leaves the class
// between read and write.
func TestStatus_GuardedByVersion(t *testing.T) {
	e := newEnvironment(t)
	e.ingress("leaves", nil)
	e.service(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	e.sent.before = func() {
		e.sent.mu.Lock()
		e.sent.before = nil
		e.sent.mu.Unlock()
		e.change("leaves", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = "nginx" })
	}
	e.run(e.controller(e.identity()))
	await(t, "the write is attempted", func() bool { return e.sent.count() == 1 })
	e.ingress("marker", nil)
	e.awaitStatus([]address{ip("192.0.2.1")}, "marker")
	if !e.has("leaves") || e.sent.count() != 2 {
		t.Errorf("writes %q, status %v", e.sent.all, e.get("leaves").Status)
	}
	e.change("leaves", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = e.class })
	e.awaitStatus([]address{ip("192.0.2.1")}, "leaves")
}

// While the Service is deleted and recreated, an Ingress keeps its addresses until the new Service has some.
func TestStatus_ServiceRecreated(t *testing.T) {
	e := newEnvironment(t)
	e.service(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	e.ingress("web", nil)
	e.run(e.controller(e.identity()))
	e.awaitStatus([]address{ip("192.0.2.1")}, "web")
	changes, err := e.admin.Kube().NetworkingV1().Ingresses(e.home).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	if err := e.admin.Kube().CoreV1().Services(e.home).Delete(t.Context(), "gateway", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.change("web", func(i *networkingv1.Ingress) { i.Labels["round"] = "2" }) // causes a reconcile
	await(t, "the missing Service is logged", func() bool { return e.log.Count("gateway Service does not exist") == 1 })
	e.service()
	await(t, "the Service is logged", func() bool { return e.log.Count("gateway Service exists now") == 1 })
	e.balance(corev1.LoadBalancerIngress{IP: "192.0.2.2"})
	var seen [][]address
	for event := range changes.ResultChan() {
		i, ok := event.Object.(*networkingv1.Ingress)
		if !ok {
			t.Fatalf("watch ended: %v", event)
		}
		seen = append(seen, i.Status.LoadBalancer.Ingress)
		if len(i.Status.LoadBalancer.Ingress) == 0 {
			t.Fatalf("addresses were removed: %v", seen)
		}
		if i.Status.LoadBalancer.Ingress[0].IP == "192.0.2.2" {
			return
		}
	}
}
