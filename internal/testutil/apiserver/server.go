package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
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

// Server is an in-memory API server. It embeds a client for tests with only one participant.
type Server struct {
	*Client

	mu       sync.Mutex
	version  uint64
	objects  map[string]object // by version, resource, namespace and name
	history  []Event
	watchers []*watcher
}

// Object is an object with a type, such as a *corev1.ConfigMap.
type Object interface {
	runtime.Object
	metav1.Object
}

// Event is one stored change of an object.
type Event struct {
	// Kind is ADDED, MODIFIED or DELETED.
	Kind watch.EventType
	// Version is the resourceVersion of the change.
	Version uint64
	// At is the time of the change.
	At time.Time
	// By is the name of the client. It is empty for a change by the test.
	By string
	// Object is the state after the change, or the last state of a deleted object.
	Object *unstructured.Unstructured

	key string
}

// Decode converts the object to its type.
func (e Event) Decode(into Object) { decode(e.Object, into) }

// New returns a server with objects.
func New(objects ...runtime.Object) *Server {
	s := &Server{version: firstVersion, objects: map[string]object{}}
	s.Client = s.NewClient("")
	for _, o := range objects {
		s.Put(o)
	}
	return s
}

// Version returns the current value of the version counter.
func (s *Server) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// History returns all changes of an object, oldest first.
func (s *Server) History(resource, namespace, name string) (events []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.history {
		if isKey(e.key, resource, namespace, name) {
			events = append(events, e)
		}
	}
	return events
}

// Changes returns the changes of all objects after the first ones, oldest first.
func (s *Server) Changes(after int) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history[after:])
}

// Put stores an object without a guard. An object without a kind must have a known type.
func (s *Server) Put(o runtime.Object) {
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.Empty() {
		kind = kindFor(o)
	}
	u := object(&unstructured.Unstructured{Object: contentOf(o)})
	u.SetGroupVersionKind(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(keyFor(kind, u), u, "")
}

// Edit changes or creates an object without a guard, as kubectl does. into has its namespace and name, and receives its content before
// the change. If nothing changes, nothing is stored. by is the writer in the history.
func (s *Server) Edit(by string, into Object, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := kindFor(into)
	key := keyFor(kind, into)
	old, exists := s.objects[key]
	if exists {
		decode(old, into)
	}
	change()
	next := object(&unstructured.Unstructured{Object: contentOf(into)})
	next.SetGroupVersionKind(kind)
	if !exists || !sameContent(old, next) {
		s.put(key, next, by)
	}
}

// Backup is a saved state of a server.
type Backup struct {
	objects map[string]object
	version uint64
}

// Backup saves the current state.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{maps.Clone(s.objects), s.version}
}

// Restore restores the server, as etcd is restored from a backup: objects and version counter go back, and every watch ends. A watch
// that resumes from a later version is silent until the counter reaches that version.
func (s *Server) Restore(b Backup) {
	s.mu.Lock()
	s.objects = maps.Clone(b.objects)
	s.version = b.version
	s.history = slices.DeleteFunc(slices.Clone(s.history), func(e Event) bool { return e.Version > b.version })
	open := slices.Clone(s.watchers)
	s.mu.Unlock()
	for _, w := range open {
		w.end(nil)
	}
}

func kindFor(o runtime.Object) schema.GroupVersionKind {
	kinds, _, err := known.ObjectKinds(o)
	if err != nil {
		panic(err) // a mistake of the test
	}
	return kinds[0]
}

func keyFor(kind schema.GroupVersionKind, o metav1.Object) string {
	return keyOf(Request{Version: kind.GroupVersion(), Resource: plural(kind), Namespace: o.GetNamespace(), Name: o.GetName()})
}

// contentOf returns the content of an object. Fields without a value are absent.
func contentOf(o runtime.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // a mistake of the test
	}
	prune(content)
	return content
}

func prune(content map[string]any) {
	for name, value := range content {
		nested, isMap := value.(map[string]any)
		if isMap {
			prune(nested)
		}
		if value == nil {
			delete(content, name)
		}
	}
}

func decode(o object, into any) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		panic(err) // a mistake of the test
	}
}

func format(version uint64) string { return strconv.FormatUint(version, 10) }

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
	s.remove(key, "")
	return true
}

// find returns the key of an object in any version, or "". The caller holds mu.
func (s *Server) find(resource, namespace, name string) string {
	for key := range s.objects {
		if isKey(key, resource, namespace, name) {
			return key
		}
	}
	return ""
}

func isKey(key, resource, namespace, name string) bool {
	return strings.HasSuffix(key, "/"+resource+"/"+namespace+"/"+name)
}

// Get reads a stored object in any version, and reports whether it exists.
func (s *Server) Get(resource, namespace, name string, into any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.find(resource, namespace, name)
	if key != "" {
		decode(s.objects[key], into)
	}
	return key != ""
}

func keyOf(r Request) string {
	return r.Version.Group + "/" + r.Version.Version + "/" + r.Resource + "/" + r.Namespace + "/" + r.Name
}

// put stores an object. The caller holds mu.
func (s *Server) put(key string, o object, by string) object {
	kind := watch.Added
	old, exists := s.objects[key]
	s.version++
	if exists {
		kind = watch.Modified
		if o.GetUID() == "" || o.GetUID() == old.GetUID() {
			o.SetUID(old.GetUID())
			o.SetCreationTimestamp(old.GetCreationTimestamp())
		}
	} else if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.version)))
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	o.SetResourceVersion(format(s.version))
	s.objects[key] = o
	s.publish(Event{Kind: kind, By: by, Object: o, key: key})
	return o
}

// remove deletes an object. The caller holds mu.
func (s *Server) remove(key, by string) object {
	s.version++
	last := s.objects[key].DeepCopy()
	last.SetResourceVersion(format(s.version))
	delete(s.objects, key)
	s.publish(Event{Kind: watch.Deleted, By: by, Object: last, key: key})
	return last
}

func (s *Server) publish(e Event) {
	e.Version = s.version
	e.At = time.Now()
	s.history = append(s.history, e)
	for _, w := range s.watchers {
		w.add(e, e.At.Add(w.client.latency()))
	}
}

// serve executes a request of a client.
func (s *Server) serve(by string, r Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Verb == "list" {
		return s.list(r)
	}
	if r.Verb == "create" && r.Subresource == "" {
		r.Name, _, _ = unstructured.NestedString(r.Body, "metadata", "name")
	}
	key := keyOf(r)
	old, exists := s.objects[key]
	applies := r.Verb == "patch" && r.Header.Get("Content-Type") == string(types.ApplyPatchType)
	dry := slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll) || fmt.Sprint(r.Body["dryRun"]) == "[All]" // of a deletion
	switch {
	case r.Resource == "" || !exists && r.Verb != "create" && !applies && (r.Verb != "update" || !r.isCoordination()):
		return nil, apierrors.NewNotFound(r.groupResource(), r.Name)
	case r.Verb == "get":
		return old, nil
	case r.Verb == "delete":
		if err := r.guarded(old, r.Body["preconditions"]); err != nil || dry {
			return old, err
		}
		return s.remove(key, by), nil
	}
	next, err := r.changed(old)
	if err != nil {
		return nil, err
	}
	if r.Verb == "create" && exists {
		return nil, apierrors.NewAlreadyExists(r.groupResource(), r.Name)
	}
	if dry {
		return next, nil
	}
	if r.Verb == "update" && exists && sameContent(old, next) { // same version, no event
		return old, nil
	}
	return s.put(key, next, by), nil
}

// changed returns the object that a write stores, or the error of its checks. old is nil if there is none.
func (r Request) changed(old object) (object, error) {
	next := object(&unstructured.Unstructured{Object: r.Body})
	if old != nil && r.Verb == "patch" {
		var err error
		if next, err = patched(old, r.Body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	next = next.DeepCopy()
	if r.Verb == "create" && next.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if next.GetKind() == "" {
		next.SetGroupVersionKind(r.Version.WithKind(kindOf(r)))
	}
	next.SetNamespace(r.Namespace)
	if r.Verb != "create" {
		if err := r.guarded(old, next.Object["metadata"]); err != nil {
			return nil, err
		}
	}
	return next, r.validate(old, next)
}

// isCoordination reports whether the object is a Lease or a LeaseCandidate. A PUT may create it, and must have a version if it exists.
func (r Request) isCoordination() bool { return r.Version.Group == coordinationv1.GroupName }

// guarded compares resourceVersion and UID of an object with the fields of a request, if these are not empty.
func (r Request) guarded(old object, fields any) error {
	expected, _ := fields.(map[string]any)
	actual := map[string]string{"uid": ""}
	if old != nil {
		actual = map[string]string{"resourceVersion": old.GetResourceVersion(), "uid": string(old.GetUID())}
	}
	for name, is := range actual {
		if want, _ := expected[name].(string); want != "" && want != is {
			return apierrors.NewConflict(r.groupResource(), r.Name, fmt.Errorf("%s is %q, not %s", name, is, want))
		}
	}
	return nil
}

// validate returns the validation error of the API server for a Lease.
func (r Request) validate(old, next object) error {
	if !r.isCoordination() {
		return nil
	}
	var errs field.ErrorList
	if r.Verb == "update" && old != nil && next.GetResourceVersion() == "" {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"))
	}
	if r.Resource == "leases" {
		var lease coordinationv1.Lease
		decode(next, &lease)
		spec := field.NewPath("spec")
		if d := lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
			errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
		}
		if lease.Spec.PreferredHolder != nil && lease.Spec.Strategy == nil {
			errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
		}
		if n := lease.Spec.LeaseTransitions; n != nil && *n < 0 {
			errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.Version.WithKind(r.Resource).GroupKind(), r.Name, errs)
	}
	return nil
}

// sameContent compares everything that a writer can change.
func sameContent(stored, sent object) bool {
	a, b := stored.DeepCopy(), sent.DeepCopy()
	for _, o := range []object{a, b} {
		o.SetResourceVersion("")
		o.SetUID("")
		o.SetCreationTimestamp(metav1.Time{})
		prune(o.Object)
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
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
		"metadata": map[string]any{"resourceVersion": format(s.version)},
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
		about, _, _ := unstructured.NestedString(o.Object, "involvedObject", "kind") // of an Event
		own := Request{Version: r.Version, Resource: r.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}
		return key == keyOf(own) && (r.Namespace == "" || r.Namespace == o.GetNamespace()) && byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "type": fmt.Sprint(o.Object["type"]), "reason": fmt.Sprint(o.Object["reason"]), "involvedObject.kind": about})
	}, nil
}
