package gatewaystatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

	"incumbent.dev/incumbent/internal/testutil/fakes"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/revisions"
)

// stub is a client without an API server and a tag watcher. It counts attempts to write.
type stub struct {
	*testing.T
	fakes.Client
	api *gatewayfake.Clientset
	// routeTracker has the routes of all kinds.
	routeTracker k8stesting.ObjectTracker
	log          harness.Log

	mu      sync.Mutex
	answer  error // result of all writes; if nil, they succeed
	tries   map[string]int
	version int
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

func (s *stub) Conflicts() []revisions.Conflict { return nil }

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

func (s *stub) tried() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tries)
}

func newStub(t *testing.T) *stub {
	known := routeScheme()
	s := &stub{T: t, Client: fakes.Client{Clientset: kubefake.NewClientset()}, api: gatewayfake.NewSimpleClientset(), routeTracker: k8stesting.NewObjectTracker(known, serializer.NewCodecFactory(known).UniversalDecoder()), tries: map[string]int{}, version: 100, synced: true}
	for _, verb := range []string{"patch", "create"} {
		s.api.PrependReactor(verb, "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
			what := action.GetVerb() + " " + action.GetResource().Resource
			if patch, ok := action.(k8stesting.PatchAction); ok {
				what += " " + patch.GetNamespace() + "/" + patch.GetName()
			}
			s.mu.Lock()
			s.tries[what]++
			s.version++
			answer, version := s.answer, strconv.Itoa(s.version)
			s.mu.Unlock()
			if answer != nil {
				return true, nil, answer
			}
			// The fake clientset does not set a new resourceVersion.
			switch action := action.(type) {
			case k8stesting.PatchActionImpl:
				action.Patch = versions.ReplaceAll(action.Patch, []byte(`${1}"`+version+`"`))
				return k8stesting.ObjectReaction(s.tracker(action.Resource.Resource))(action)
			case k8stesting.CreateActionImpl:
				action.GetObject().(metav1.Object).SetResourceVersion(version)
			}
			return false, nil, nil
		})
	}
	for _, resource := range routeKinds {
		s.api.PrependReactor("list", resource, k8stesting.ObjectReaction(s.routeTracker))
		s.api.PrependReactor("get", resource, k8stesting.ObjectReaction(s.routeTracker))
		s.api.PrependWatchReactor(resource, func(action k8stesting.Action) (bool, watch.Interface, error) {
			w, err := s.routeTracker.Watch(action.GetResource(), action.GetNamespace())
			return true, w, err
		})
	}
	for _, o := range world() {
		s.put(o)
	}
	return s
}

// tracker returns the objects of a resource of the Gateway API.
func (s *stub) tracker(resource string) k8stesting.ObjectTracker {
	for _, of := range routeKinds {
		if resource == of {
			return s.routeTracker
		}
	}
	return s.api.Tracker()
}

// routes returns a client for a resource.
func (s *stub) routes(resource, namespace string) routeClient {
	kind := ""
	for k, of := range routeKinds {
		if resource == of {
			kind = k
		}
	}
	return gentype.NewFakeClientWithList(&s.api.Fake, namespace, routeVersion.WithResource(resource), routeVersion.WithKind(kind),
		func() *route { return &route{} }, func() *routeList { return &routeList{} },
		func(to, from *routeList) { to.ListMeta = from.ListMeta },
		func(l *routeList) []*route { return l.Items }, func(l *routeList, items []*route) { l.Items = items })
}

// versions are in merge patches and in JSON patches.
var versions = regexp.MustCompile(`("resourceVersion":|"path":"/metadata/resourceVersion","value":)"\d*"`)

// changed returns a change of an object of the world.
func changed[T runtime.Object](name string, change func(T)) func(*stub) {
	return func(s *stub) {
		s.Helper()
		for _, o := range world() {
			object, ok := o.(T)
			if meta, is := o.(metav1.Object); ok && is && meta.GetName() == name {
				change(object)
				s.set(func() {
					s.version++
					meta.SetResourceVersion(strconv.Itoa(s.version))
				})
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
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", ResourceVersion: "1", Generation: 1}
	}
	made := func(name string) metav1.ObjectMeta {
		m := meta("apps", name)
		m.Labels = map[string]string{gateway.GatewayNameLabelKey: "gw"}
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", Name: "gw", UID: "u"}}
		return m
	}
	certs, port := gateway.Namespace("certs"), gateway.PortNumber(80)
	return []runtime.Object{
		&corev1.Namespace{ObjectMeta: meta("", "apps")},
		&gateway.GatewayClass{ObjectMeta: meta("", "istio"), Spec: gateway.GatewayClassSpec{ControllerName: ControllerName}},
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
	}
}

// put creates or updates an object.
func (s *stub) put(o runtime.Object) {
	s.Helper()
	resource := ""
	switch o := o.(type) {
	case *gateway.GatewayClass:
		resource = "gatewayclasses"
	case *gateway.Gateway:
		resource = "gateways"
	case *gateway.ReferenceGrant:
		resource = "referencegrants"
	case *route:
		resource = cmp.Or(routeKinds[o.Kind], "httproutes")
	default:
		s.Put(s.T, o)
		return
	}
	fakes.Put(s.T, s.tracker(resource), routeVersion.WithResource(resource), o)
}

// remove deletes the object of the world of each resource.
func (s *stub) remove(resources ...string) {
	s.Helper()
	for _, resource := range resources {
		namespace, name := "apps", map[string]string{"gatewayclasses": "istio", "gateways": "gw", "httproutes": "route"}[resource]
		if resource == "gatewayclasses" {
			namespace = ""
		}
		if err := s.tracker(resource).Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: resource}, namespace, name); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *stub) controller(config Config) *Controller {
	s.Helper()
	config.Tags, config.Event, config.Logger = s, s.note, slog.New(slog.NewTextHandler(&s.log, nil))
	c, err := newController(s, config, func(*rest.Config) (clients, error) { return clients{s.api.GatewayV1(), s.routes}, nil })
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// run runs a controller while the function runs.
func (s *stub) run(config Config, during func()) {
	s.Helper()
	fakes.Run(s.T, s.controller(config), during)
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
	g, err := s.api.GatewayV1().Gateways("apps").Get(s.Context(), "gw", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return g
}
