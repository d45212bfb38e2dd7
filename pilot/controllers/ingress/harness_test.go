package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// environment is a namespace of the shared cluster, with a gateway's Service in it. The tests of
// this package do not run at once: an IngressClass is every namespace's.
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

// rights are all that the controller needs.
func rights(write ...string) (home, everywhere []rbacv1.PolicyRule) {
	read := []string{"list", "watch"}
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services", "pods"}, Verbs: read}},
		[]rbacv1.PolicyRule{
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "ingressclasses"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: append([]string{"watch"}, write...)},
		}
}

// identity is that of a pod with these rights, whose requests are noted.
func (e *environment) identity(write ...string) *rest.Config {
	e.Helper()
	home, everywhere := rights(write...)
	config := e.cluster.Identity(e.T, cluster.IdentityOptions{Namespace: e.home, PodName: fmt.Sprint("controller-", len(write)), ServiceAccount: "controller", Rules: home, ClusterRules: everywhere})
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

// run runs a controller until end is called, which the test's end does, too.
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

// change changes an Ingress, as others do.
func (e *environment) change(name string, change func(*networkingv1.Ingress)) {
	e.Helper()
	i := e.get(name)
	change(i)
	check[*networkingv1.Ingress](e)(e.admin.Kube().NetworkingV1().Ingresses(e.home).Update(e.Context(), i, metav1.UpdateOptions{}))
}

// service makes the gateway's Service, with this load balancer's status.
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

// requests notes writes before they are sent.
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

// events are those that were recorded.
type events struct {
	mu  sync.Mutex
	all []string
}

func (r *events) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, _ := object.(metav1.Object)
	r.all = append(r.all, o.GetName()+" "+kind+" "+reason+" "+fmt.Sprintf(message, args...))
}

func (r *events) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.all...)
}

// await looks again and again until something holds.
var await = harness.Until
