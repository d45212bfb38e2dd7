package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// stub is an API server for the controller.
type stub struct {
	*controllertest.Stub
	events events
}

// newStub has a Service without addresses and its pod on a node, so that all kinds affect the result.
func newStub(t *testing.T, more ...runtime.Object) *stub {
	t.Helper()
	app := map[string]string{"app": "gateway"}
	class := "ours"
	return &stub{Stub: controllertest.NewStub(t, append([]runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway", UID: "u"}, Spec: corev1.ServiceSpec{Selector: app}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway-1", UID: "u", Labels: app},
			Spec:       corev1.PodSpec{NodeName: "one"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}},
		},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "two", UID: "u"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.5"}}},
		},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class, UID: "u"}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName}},
		&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "one", UID: "u"}, Spec: networkingv1.IngressSpec{IngressClassName: &class},
		},
	}, more...)...)}
}

func (s *stub) answers(err error) { s.Answer(func() error { return err }) }

func (s *stub) controller() *Controller {
	s.Helper()
	return s.controllerOf(Config{Service: key{Namespace: "home", Name: "gateway"}})
}

// controllerOf returns a controller with this Service or these Pods.
func (s *stub) controllerOf(config Config) *Controller {
	s.Helper()
	config.Mode, config.Class, config.Event, config.Logger = Strict, "istio", s.events.Eventf, slog.New(slog.NewTextHandler(&s.Log, nil))
	c, err := New(s.Client, config)
	harness.Must(s.T, err)
	return c
}

// run runs a controller while the function runs.
func (s *stub) run(c *Controller, during func()) {
	s.Helper()
	controllertest.Run(s.T, c, during)
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "ingresses"}, "one", errors.New("no right"))
)

// patches returns the attempted patches, without their resourceVersions.
func (s *stub) patches() (all []string) {
	for _, w := range s.Writes() {
		metadata, _ := w.Body["metadata"].(map[string]any)
		if metadata["resourceVersion"] == nil {
			s.Errorf("%s is not guarded", w)
		}
		content, err := json.Marshal(map[string]any{"uid": metadata["uid"], "status": w.Body["status"]})
		harness.Must(s.T, err)
		all = append(all, w.Name+" "+w.Subresource+" "+string(content))
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
