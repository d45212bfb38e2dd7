package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/fakes"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// stub is a client without an API server. It counts attempts to write.
type stub struct {
	*testing.T
	fakes.Client
	attempts atomic.Int32
	mu       sync.Mutex
	answer   error // result of each write; if nil, the write succeeds
	log      harness.Log
	events   events
}

// newStub has a Service without addresses and its pod on a node, so that all kinds affect the result.
func newStub(t *testing.T, more ...runtime.Object) *stub {
	t.Helper()
	app := map[string]string{"app": "gateway"}
	class := "ours"
	s := &stub{T: t, Client: fakes.Client{Clientset: fake.NewClientset(append([]runtime.Object{
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
	}, more...)...)}}
	s.Clientset.PrependReactor("patch", "ingresses", func(k8stesting.Action) (bool, runtime.Object, error) {
		s.attempts.Add(1)
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

// run runs a controller while the function runs.
func (s *stub) run(c *Controller, during func()) {
	s.Helper()
	fakes.Run(s.T, c, during)
}

// put creates or updates an object.
func (s *stub) put(o runtime.Object) {
	s.Helper()
	s.Put(s.T, o)
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "ingresses"}, "one", errors.New("no right"))
)

// patches returns the attempted patches.
func (s *stub) patches() (all []string) {
	for _, action := range s.Clientset.Actions() {
		if patch, ok := action.(k8stesting.PatchAction); ok {
			all = append(all, patch.GetName()+" "+patch.GetSubresource()+" "+string(patch.GetPatch()))
		}
	}
	return all
}

// changedIngress returns the Ingress of newStub after a change.
func changedIngress(change func(*networkingv1.Ingress)) *networkingv1.Ingress {
	class := "ours"
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "one", UID: "u", ResourceVersion: "2"}, Spec: networkingv1.IngressSpec{IngressClassName: &class},
	}
	change(i)
	return i
}

// events records Events.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, _ := object.(metav1.Object)
	e.all = append(e.all, o.GetName()+" "+kind+" "+reason+" "+fmt.Sprintf(message, args...))
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.all...)
}
