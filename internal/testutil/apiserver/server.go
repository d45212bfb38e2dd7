package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// firstVersion soon grows from two digits to three, so that a comparison of versions as strings fails.
const firstVersion = 97

// known has the kinds of Kubernetes and of the Gateway API.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, gateway.Install} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// object is a stored object. It is replaced, never changed.
type object = *unstructured.Unstructured

// Server is an in-memory API server.
type Server struct {
	mu       sync.Mutex
	version  int
	objects  map[string]object // by version, resource, namespace and name
	history  []event
	changed  chan struct{} // closed at the next change
	watches  []*stream
	delay    time.Duration // of watch events
	requests []Request
	on       func(Request) Fault
}

type event struct {
	kind   watch.EventType
	key    string
	object object
	at     time.Time
}

// New returns a server with objects.
func New(objects ...runtime.Object) *Server {
	s := &Server{version: firstVersion, objects: map[string]object{}, changed: make(chan struct{})}
	for _, o := range objects {
		s.Put(o)
	}
	return s
}

// Config returns the configuration of clients.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://api.invalid", QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return s }}
}

// Kube returns a client.
func (s *Server) Kube(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// On sets the function that returns the fault of each request. It may call the server.
func (s *Server) On(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = fault
}

// received records a request and returns its fault.
func (s *Server) received(r Request) Fault {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	on := s.on
	s.mu.Unlock()
	if on == nil {
		return Fault{}
	}
	return on(r)
}

// Requests returns the requests since its last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Put stores an object without a guard. An object without a kind must have a known type.
func (s *Server) Put(o runtime.Object) {
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.Empty() {
		kinds, _, err := known.ObjectKinds(o)
		if err != nil {
			panic(err) // a mistake of the test
		}
		kind = kinds[0]
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	u := object(&unstructured.Unstructured{Object: content})
	u.SetGroupVersionKind(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(keyOf(Request{Version: kind.GroupVersion(), Resource: plural(kind), Namespace: u.GetNamespace(), Name: u.GetName()}), u)
}

// plural returns the resource of a kind.
func plural(kind schema.GroupVersionKind) string {
	if kind.Kind == "Gateway" {
		return "gateways" // not gatewaies
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource.Resource
}

// Delete deletes an object, and reports whether it existed.
func (s *Server) Delete(resource, namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.find(resource, namespace, name)
	if key == "" {
		return false
	}
	s.remove(key)
	return true
}

// find returns the key of an object in any version, or "". The caller holds mu.
func (s *Server) find(resource, namespace, name string) string {
	for key := range s.objects {
		if strings.HasSuffix(key, "/"+resource+"/"+namespace+"/"+name) {
			return key
		}
	}
	return ""
}

// Get reads a stored object, and reports whether it exists.
func (s *Server) Get(resource, namespace, name string, into any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.find(resource, namespace, name)
	if key == "" {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.objects[key].Object, into); err != nil {
		panic(err) // a mistake of the test
	}
	return true
}

func keyOf(r Request) string {
	return r.Version.Group + "/" + r.Version.Version + "/" + r.Resource + "/" + r.Namespace + "/" + r.Name
}

// put stores an object. The caller holds mu.
func (s *Server) put(key string, o object) {
	kind := watch.Added
	old, exists := s.objects[key]
	s.version++
	if exists {
		kind = watch.Modified
		if o.GetUID() == "" {
			o.SetUID(old.GetUID())
			o.SetCreationTimestamp(old.GetCreationTimestamp())
		}
	} else if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.version)))
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[key] = o
	s.publish(event{kind, key, o, time.Now()})
}

// remove deletes an object. The caller holds mu.
func (s *Server) remove(key string) object {
	s.version++
	last := s.objects[key].DeepCopy()
	last.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects, key)
	s.publish(event{watch.Deleted, key, last, time.Now()})
	return last
}

func (s *Server) publish(e event) {
	s.history = append(s.history, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// serve executes a request.
func (s *Server) serve(r Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, resource := keyOf(r), schema.GroupResource{Group: r.Version.Group, Resource: r.Resource}
	if r.Verb == "list" {
		return s.list(r)
	}
	if r.Verb == "create" && r.Subresource == "" {
		r.Name, _, _ = unstructured.NestedString(r.Body, "metadata", "name")
		key = keyOf(r)
	}
	old, exists := s.objects[key]
	applies := r.Verb == "patch" && r.Header.Get("Content-Type") == string(types.ApplyPatchType)
	dry := slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll)
	switch {
	case r.Resource == "" || !exists && r.Verb != "create" && !applies:
		return nil, apierrors.NewNotFound(resource, r.Name)
	case exists && r.Verb == "create":
		return nil, apierrors.NewAlreadyExists(resource, r.Name)
	case r.Verb == "get":
		return old, nil
	case r.Verb == "delete":
		if err := guarded(old, r.Body["preconditions"], resource); err != nil || dry {
			return old, err
		}
		return s.remove(key), nil
	}
	next := object(&unstructured.Unstructured{Object: r.Body})
	if exists {
		if r.Verb == "patch" {
			var err error
			if next, err = patched(old, r.Body); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		if err := guarded(old, next.Object["metadata"], resource); err != nil {
			return nil, err
		}
	}
	next = next.DeepCopy()
	next.SetNamespace(r.Namespace)
	if !dry {
		s.put(key, next)
	}
	return next, nil
}

// guarded compares resourceVersion and UID of an object with the fields of a request, if these are not empty.
func guarded(old object, fields any, resource schema.GroupResource) error {
	expected, _ := fields.(map[string]any)
	for name, actual := range map[string]string{"resourceVersion": old.GetResourceVersion(), "uid": string(old.GetUID())} {
		if want, _ := expected[name].(string); want != "" && want != actual {
			return apierrors.NewConflict(resource, old.GetName(), fmt.Errorf("%s is %s, not %s", name, actual, want))
		}
	}
	return nil
}

// patched returns a copy of an object after a patch.
func patched(o object, patch map[string]any) (object, error) {
	operations, isJSONPatch := patch["operations"]
	if !isJSONPatch {
		next := o.DeepCopy()
		merge(next.Object, patch)
		return next, nil
	}
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	old, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	changed, err := decoded.Apply(old)
	if err != nil {
		return nil, err
	}
	next := &unstructured.Unstructured{}
	return next, next.UnmarshalJSON(changed)
}

// merge applies a merge patch.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		nested, isMap := value.(map[string]any)
		old, wasMap := into[name].(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isMap && wasMap:
			merge(old, nested)
		default:
			into[name] = value
		}
	}
}

// list returns the selected objects. The caller holds mu.
func (s *Server) list(r Request) (any, error) {
	matches, err := selector(r)
	if err != nil {
		return nil, err
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[key]; matches(key, o) {
			items = append(items, o.Object)
		}
	}
	return map[string]any{
		"apiVersion": r.Version.String(), "kind": kindOf(r) + "List", "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)},
	}, nil
}

// kindOf returns the kind of a resource, or a name that unstructured clients accept.
func kindOf(r Request) string {
	for kind := range known.KnownTypes(r.Version) {
		if plural(r.Version.WithKind(kind)) == r.Resource {
			return kind
		}
	}
	return r.Resource
}

// selector returns a function that matches the objects of a list or watch.
func selector(r Request) (func(key string, o object) bool, error) {
	query := r.URL.Query()
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(key string, o object) bool {
		own := Request{Version: r.Version, Resource: r.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}
		return key == keyOf(own) && (r.Namespace == "" || r.Namespace == o.GetNamespace()) && byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "type": fmt.Sprint(o.Object["type"])})
	}, nil
}
