package ingress

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// stub is a client without a server behind it. It counts tries to write, which answer decides about.
type stub struct {
	*testing.T
	clientset *fake.Clientset
	tries     atomic.Int32
	mu        sync.Mutex
	answer    error
	log       harness.Log
	events    events
}

func (s *stub) Kube() kubernetes.Interface { return s.clientset }
func (s *stub) Dynamic() dynamic.Interface { return nil }
func (s *stub) RESTConfig() *rest.Config   { return &rest.Config{} }

// newStub has a Service without addresses of its own and a pod of it on a node, so that all kinds matter.
func newStub(t *testing.T, more ...runtime.Object) *stub {
	t.Helper()
	app := map[string]string{"app": "gateway"}
	class := "ours"
	s := &stub{T: t, clientset: fake.NewClientset(append([]runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway", UID: "u", ResourceVersion: "1"}, Spec: corev1.ServiceSpec{Selector: app}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway-1", UID: "u", Labels: app, ResourceVersion: "1"},
			Spec:       corev1.PodSpec{NodeName: "one"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u", ResourceVersion: "1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "two", UID: "u", ResourceVersion: "1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.5"}}},
		},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class, UID: "u", ResourceVersion: "1"}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName}},
		&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "one", UID: "u", ResourceVersion: "1"}, Spec: networkingv1.IngressSpec{IngressClassName: &class},
		},
	}, more...)...)}
	s.clientset.PrependReactor("patch", "ingresses", func(k8stesting.Action) (bool, runtime.Object, error) {
		s.tries.Inc()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.answer != nil, nil, s.answer
	})
	return s
}

func (s *stub) answers(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = err
}

func (s *stub) controller() *Controller {
	s.Helper()
	c, err := New(s, Config{
		Mode: Strict, Class: "istio", Service: key{Namespace: "home", Name: "gateway"}, Event: s.events.Eventf,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// run runs a controller for as long as during takes.
func (s *stub) run(c *Controller, during func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	during()
	cancel()
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "ingresses"}, "one", errors.New("no right"))
	errConflict  = apierrors.NewConflict(schema.GroupResource{Resource: "ingresses"}, "one", errors.New("changed"))
)

// A change that addresses or classes depend on is looked at when it comes, also while a write waits out a back-off; any other
// is not: it would go past that.
func TestWhichChangesCauseATry(t *testing.T) {
	label := map[string]string{"changed": "1"}
	app := map[string]string{"app": "gateway"}
	meta := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", ResourceVersion: "2", Labels: labels}
	}
	class := "ours"
	external := func(ip string) corev1.NodeStatus {
		return corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}, {Type: corev1.NodeExternalIP, Address: ip}}}
	}
	running := func(m metav1.ObjectMeta, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
	}
	balanced := &corev1.Service{
		ObjectMeta: meta("home", "gateway", nil), Spec: corev1.ServiceSpec{Selector: app},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}}},
	}
	for name, test := range map[string]struct {
		before, change runtime.Object
		tries          int32
	}{
		"an Ingress's label":         {nil, &networkingv1.Ingress{ObjectMeta: meta("apps", "one", label), Spec: networkingv1.IngressSpec{IngressClassName: &class}}, 0},
		"an Ingress's status":        {nil, &networkingv1.Ingress{ObjectMeta: meta("apps", "one", nil), Spec: networkingv1.IngressSpec{IngressClassName: &class}, Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []address{ip("192.0.2.7")}}}}, 1},
		"a class's label":            {nil, &networkingv1.IngressClass{ObjectMeta: meta("", class, label), Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}, 0},
		"the Service's label":        {nil, &corev1.Service{ObjectMeta: meta("home", "gateway", label), Spec: corev1.ServiceSpec{Selector: app}}, 0},
		"the Service's addresses":    {nil, balanced, 1},
		"a pod's address":            {nil, running(meta("home", "gateway-1", app), "one"), 0},
		"a pod's node":               {nil, running(meta("home", "gateway-1", app), "two"), 1},
		"another pod":                {nil, running(meta("home", "other", label), "one"), 0},
		"a further pod":              {nil, running(meta("home", "gateway-2", app), "one"), 1},
		"a further pod, balanced":    {balanced, running(meta("home", "gateway-2", app), "one"), 0},
		"a node's label":             {nil, &corev1.Node{ObjectMeta: meta("", "one", label), Status: external("192.0.2.1")}, 0},
		"a node's address":           {nil, &corev1.Node{ObjectMeta: meta("", "one", nil), Status: external("192.0.2.2")}, 1},
		"a node's address, balanced": {balanced, &corev1.Node{ObjectMeta: meta("", "one", nil), Status: external("192.0.2.2")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.answers(errForbidden)
				s.run(s.controller(), func() {
					if test.before != nil {
						s.put(test.before)
					}
					time.Sleep(2 * time.Minute) // the back-off is half a minute by then
					synctest.Wait()
					before := s.tries.Load()
					s.put(test.change)
					synctest.Wait()
					if n := s.tries.Load() - before; before == 0 || n != test.tries {
						t.Errorf("%d tries, and then %d, want %d", before, n, test.tries)
					}
				})
			})
		})
	}
}

// put stores an object, there or not.
func (s *stub) put(o runtime.Object) {
	s.Helper()
	tracker := s.clientset.Tracker()
	resource := schema.GroupVersionResource{Version: "v1"}
	var at metav1.Object
	switch o := o.(type) {
	case *corev1.Service:
		resource.Resource, at = "services", o
	case *corev1.Pod:
		resource.Resource, at = "pods", o
	case *corev1.Node:
		resource.Resource, at = "nodes", o
	case *networkingv1.IngressClass:
		resource.Group, resource.Resource, at = networkingv1.GroupName, "ingressclasses", o
	case *networkingv1.Ingress:
		resource.Group, resource.Resource, at = networkingv1.GroupName, "ingresses", o
	default:
		s.Fatalf("a %T", o)
	}
	err := tracker.Update(resource, o, at.GetNamespace())
	if apierrors.IsNotFound(err) {
		err = tracker.Create(resource, o, at.GetNamespace())
	}
	if err != nil {
		s.Fatal(err)
	}
}

// A conflict means that the cache is behind: what it shows next is looked at, and nothing is tried before.
func TestAConflictIsNotTriedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.clientset.PrependReactor("patch", "ingresses", func(k8stesting.Action) (bool, runtime.Object, error) {
			if s.tries.Load() > 10 {
				return false, nil, nil
			}
			s.tries.Inc()
			return true, nil, errConflict
		})
		s.run(s.controller(), func() {
			time.Sleep(time.Second)
			if n := s.tries.Load(); n != 1 {
				t.Errorf("%d tries", n)
			}
			if s.log.Count("reconcile failed") > 0 {
				t.Errorf("a conflict is no failure:\n%s", &s.log)
			}
		})
	})
}

// Of an Ingress that has gone while its write failed there is nobody to tell.
func TestAWriteThatFailsForAnIngressThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := s.controller()
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.failing(key{Namespace: "apps", Name: "gone"}, errForbidden)
		c.failing(key{Namespace: "apps", Name: "one"}, errForbidden)
		if got := s.events.list(); len(got) != 1 || !strings.HasPrefix(got[0], "one Warning StatusNotWritten ") {
			t.Errorf("Events: %q", got)
		}
	})
}

// Each kind that may not be read is named, with what is not done meanwhile, and the Service is asked for by its name.
func TestWhichKindsMayNotBeRead(t *testing.T) {
	for _, kind := range []string{"ingresses", "ingressclasses", "services", "pods", "nodes"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				for _, verb := range []string{"list", "watch"} {
					s.clientset.PrependReactor(verb, kind, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errForbidden })
				}
				s.clientset.PrependWatchReactor(kind, k8stesting.DefaultWatchReactor(nil, errForbidden))
				c := s.controller()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Warm(ctx); err == nil || !strings.Contains(err.Error(), kind) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it is warm, or does not say why not: %v", err)
				}
				c.Close()
				if s.log.Count("permission is missing", " "+kind, "no status is written") != 1 {
					t.Errorf("it says:\n%s", &s.log)
				}
				for _, action := range s.clientset.Actions() {
					if list, ok := action.(k8stesting.ListAction); ok && action.GetResource().Resource == "services" {
						if got := list.GetListRestrictions().Fields.String(); got != "metadata.name=gateway" {
							t.Errorf("Services are listed by %q", got)
						}
					}
				}
			})
		})
	}
}

// What is wrong with an Ingress is said once, that it is over too, and anew for another Ingress of its name.
func TestWhatIsWrongIsSaidOfEachIngress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := "later"
		lost := func(uid string) *networkingv1.Ingress {
			return &networkingv1.Ingress{
				ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "lost", UID: "1", ResourceVersion: uid}, Spec: networkingv1.IngressSpec{IngressClassName: &later},
			}
		}
		s := newStub(t, lost("1"))
		s.run(s.controller(), func() {
			said := func(events, over int) {
				t.Helper()
				synctest.Wait()
				if n := len(s.events.list()); n != events || s.log.Count("nothing is wrong with the Ingress any more") != over {
					t.Errorf("%d Events, want %d:\n%s", n, events, &s.log)
				}
			}
			said(1, 0)
			ingresses := schema.GroupVersionResource{Group: networkingv1.GroupName, Version: "v1", Resource: "ingresses"}
			if err := s.clientset.Tracker().Delete(ingresses, "apps", "lost"); err != nil {
				t.Fatal(err)
			}
			said(1, 1)
			s.put(lost("5"))
			said(2, 1)
			s.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: later, ResourceVersion: "6"}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName}})
			said(2, 2)
		})
	})
}
