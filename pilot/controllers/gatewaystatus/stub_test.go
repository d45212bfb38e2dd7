package gatewaystatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

// stub is an API server for the controller and a tag watcher.
type stub struct {
	*controllertest.Stub

	mu      sync.Mutex
	events  []string
	synced  bool
	mine    string // the revision
	tags    []string
	handler revisions.TagHandler
}

func (s *stub) Run(<-chan struct{}) {}

func (s *stub) GetMyTags() sets.Set[string] { return nil }

func (s *stub) HasTag(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.tags, name)
}

func (s *stub) Conflicts() []tagging.Conflict { return nil }

func (s *stub) AwaitCurrent(context.Context) {}

func (s *stub) AddHandler(h revisions.TagHandler) { s.handler = h }

func (s *stub) HasSynced() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.synced }

func (s *stub) IsMine(object metav1.ObjectMeta) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object.Labels["istio.io/rev"] == s.mine
}

func (s *stub) set(change func()) { s.mu.Lock(); defer s.mu.Unlock(); change() }

func (s *stub) note(about runtime.Object, _, reason, message string, args ...any) {
	ref, _ := about.(*corev1.ObjectReference)
	s.set(func() {
		s.events = append(s.events, fmt.Sprint(ref.Kind, " ", ref.Name, " ", reason, ": ", fmt.Sprintf(message, args...)))
	})
}

// answers sets the result of all writes.
func (s *stub) answers(err error) { s.Answer(func() error { return err }) }

// tried returns the numbers of the attempted writes.
func (s *stub) tried() map[string]int {
	tries := map[string]int{}
	for _, w := range s.Writes() {
		what := w.Verb + " " + w.Resource
		if w.Verb == "patch" {
			what += " " + w.Namespace + "/" + w.Name
		}
		tries[what]++
	}
	return tries
}

func newStub(t *testing.T) *stub {
	s := &stub{Stub: controllertest.NewStub(t), synced: true}
	for _, o := range world() {
		s.put(o)
	}
	return s
}

// changed returns a change of an object of the world.
func changed[T runtime.Object](name string, change func(T)) func(*stub) {
	return func(s *stub) {
		s.Helper()
		for _, o := range world() {
			object, ok := o.(T)
			if meta, is := o.(metav1.Object); ok && is && meta.GetName() == name {
				change(object)
				s.put(object)
				return
			}
		}
		s.Fatalf("%s not found", name)
	}
}

// world returns a Gateway, its route and all objects that affect their status.
func world() []runtime.Object {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", Generation: 1}
	}
	made := func(name string) metav1.ObjectMeta {
		m := meta("apps", name)
		m.Labels = map[string]string{gateway.GatewayNameLabelKey: "gw"}
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", Name: "gw", UID: "u"}}
		return m
	}
	pod := made("gw-istio-1-a")
	pod.Labels["pod-template-hash"] = "1"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "gw-istio-1"}}
	certs, port := gateway.Namespace("certs"), gateway.PortNumber(80)
	return []runtime.Object{
		&corev1.Namespace{ObjectMeta: meta("", "apps")},
		&gateway.GatewayClass{ObjectMeta: meta("", "istio"), Spec: gateway.GatewayClassSpec{ControllerName: reconcile.GatewayController}},
		&gateway.Gateway{ObjectMeta: meta("apps", "gw"), Spec: gateway.GatewaySpec{GatewayClassName: "istio", Listeners: []gateway.Listener{{
			Name: "https", Port: 443, Protocol: gateway.HTTPSProtocolType,
			TLS: &gateway.ListenerTLSConfig{CertificateRefs: []gateway.SecretObjectReference{{Name: "tls", Namespace: &certs}}},
		}}}},
		&route{ObjectMeta: meta("apps", "route"), Spec: routeSpec{
			CommonRouteSpec: gateway.CommonRouteSpec{ParentRefs: []gateway.ParentReference{{Name: "gw"}}},
			Rules:           []routeRule{{BackendRefs: []routeBackend{{BackendObjectReference: gateway.BackendObjectReference{Name: "backend", Port: &port}}}}},
		}},
		&gateway.ReferenceGrant{ObjectMeta: meta("certs", "grant"), Spec: gateway.ReferenceGrantSpec{
			From: []gateway.ReferenceGrantFrom{{Group: gateway.GroupName, Kind: "Gateway", Namespace: "apps"}}, To: []gateway.ReferenceGrantTo{{Kind: "Secret"}},
		}},
		&corev1.Secret{ObjectMeta: meta("certs", "tls"), Type: corev1.SecretTypeTLS},
		&corev1.Service{ObjectMeta: meta("apps", "backend"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Service{
			ObjectMeta: made("gw-istio"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
		},
		&appsv1.Deployment{ObjectMeta: made("gw-istio"), Status: appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
		}},
		&corev1.Pod{ObjectMeta: pod},
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: made("gw-istio")},
		&corev1.Event{
			ObjectMeta: meta("apps", "warning"), Type: corev1.EventTypeWarning, Reason: "SyncLoadBalancerFailed",
			InvolvedObject: corev1.ObjectReference{Kind: serviceKind, Namespace: "apps", Name: "gw-istio", UID: "u"},
		},
	}
}

// put creates or updates an object.
func (s *stub) put(o runtime.Object) {
	if r, ok := o.(*route); ok {
		r.SetGroupVersionKind(routeVersion.WithKind(cmp.Or(r.Kind, "HTTPRoute")))
	}
	s.Put(o)
}

// remove deletes the object of the world of each resource.
func (s *stub) remove(resources ...string) {
	s.Helper()
	for _, resource := range resources {
		namespace, name := "apps", map[string]string{"gatewayclasses": "istio", "gateways": "gw", "httproutes": "route"}[resource]
		if resource == "gatewayclasses" {
			namespace = ""
		}
		if !s.Delete(resource, namespace, name) {
			s.Fatalf("%s %s not found", resource, name)
		}
	}
}

func (s *stub) controller(config Config) *Controller {
	s.Helper()
	config.Tags, config.Event, config.Logger = s, s.note, slog.New(slog.NewTextHandler(&s.Log, nil))
	c, err := New(s.Client, config)
	harness.Must(s.T, err)
	return c
}

// run runs a controller while the function runs.
func (s *stub) run(config Config, during func()) {
	s.Helper()
	controllertest.Run(s.T, s.controller(config), during)
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "one", errors.New("no right"))

// state returns a condition as "Status/Reason".
func state(conditions []metav1.Condition, kind string) string {
	for _, c := range conditions {
		if c.Type == kind {
			return string(c.Status) + "/" + c.Reason
		}
	}
	return ""
}

func (s *stub) gateway() *gateway.Gateway {
	s.Helper()
	g := &gateway.Gateway{}
	if !s.Get("gateways", "apps", "gw", g) {
		s.Fatal("the Gateway does not exist")
	}
	return g
}
