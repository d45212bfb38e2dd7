package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// errInterrupted is the error of an installer's requests once it is interrupted.
var errInterrupted = errors.New("interrupted")

// shelf has etcd's objects of one kind, and the events for watchers of it, in order.
type shelf[T metav1.Object] struct {
	w      *world
	group  schema.GroupResource
	stored []T // in order of creation
	// raced: another client deletes the object immediately before.
	raced bool
	// remade: another client recreates the object immediately before.
	remade bool
	events []event[T]
}

// event is one change of an object.
type event[T any] struct {
	object T
	gone   bool
}

func (s *shelf[T]) index(name string) int {
	return slices.IndexFunc(s.stored, func(o T) bool { return o.GetName() == name })
}

func (s *shelf[T]) get(name string) (none T, err error) {
	if err := s.w.request(false); err != nil {
		return none, err
	}
	i := s.index(name)
	if i < 0 {
		return none, apierrors.NewNotFound(s.group, name)
	}
	return s.stored[i], nil
}

// another reports whether a stored object has something of another field manager.
func (s *shelf[T]) another(name string) (T, bool) {
	i := s.index(name)
	if i < 0 {
		var none T
		return none, false
	}
	return s.stored[i], len(s.stored[i].GetManagedFields()) > 0
}

// force reads the fields of another field manager if applying may take its fields.
func (s *shelf[T]) force(name string, o metav1.PatchOptions, keep func(was T)) error {
	was, another := s.another(name)
	switch {
	case !another:
	case o.Force == nil || !*o.Force:
		return apierrors.NewConflict(s.group, name, errors.New("another manager owns a field"))
	default:
		keep(was)
	}
	return nil
}

// put stores an object. With a version it replaces that one alone, as an update does; without, it
// is made or overwritten.
func (s *shelf[T]) put(name, version string, object T) (none T, err error) {
	if err := s.w.request(true); err != nil {
		return none, err
	}
	i := s.index(name)
	switch {
	case version != "" && i < 0:
		return none, apierrors.NewNotFound(s.group, name)
	case version != "" && s.stored[i].GetResourceVersion() != version:
		return none, apierrors.NewConflict(s.group, name, errors.New("it was changed"))
	}
	s.w.version++
	object.SetResourceVersion(strconv.Itoa(s.w.version))
	if i < 0 {
		object.SetUID(types.UID("uid-" + strconv.Itoa(s.w.version)))
		s.stored = append(s.stored, object)
	} else {
		object.SetUID(s.stored[i].GetUID())
		s.stored[i] = object
	}
	s.events = append(s.events, event[T]{object: object})
	return object, nil
}

func (s *shelf[T]) delete(name string, options metav1.DeleteOptions) error {
	if err := s.w.request(true); err != nil {
		return err
	}
	i := s.index(name)
	if i < 0 {
		return apierrors.NewNotFound(s.group, name)
	}
	if s.remade {
		s.stored[i].SetUID(s.stored[i].GetUID() + "-again")
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != s.stored[i].GetUID() {
		return apierrors.NewConflict(s.group, name, errors.New("it is another one"))
	}
	s.events = append(s.events, event[T]{object: s.stored[i], gone: true})
	s.stored = slices.Delete(s.stored, i, i+1)
	if s.raced {
		return apierrors.NewNotFound(s.group, name)
	}
	return nil
}

// api is a client of one of the world's API servers, as far as an installer needs one.
type api struct {
	kubernetes.Interface
	w      *world
	server *server
	// planted changes what the installer is told or does.
	planted plant
}

func (a api) AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface {
	return admissionAPI{a: a}
}
func (a api) CoreV1() coreclient.CoreV1Interface      { return coreAPI{a: a} }
func (a api) Discovery() discovery.DiscoveryInterface { return discoveryAPI{a: a} }

type discoveryAPI struct {
	discovery.DiscoveryInterface
	a api
}

func (d discoveryAPI) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return []*metav1.APIGroup{}, []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Namespaced: true}, {Name: "secrets", Namespaced: true}}},
		{GroupVersion: "c.example/v1", APIResources: []metav1.APIResource{{Name: "buoys", Namespaced: true}, {Name: "beacons"}, {Name: "beacons/status"}}},
		{GroupVersion: "rbac.authorization.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "clusterroles"}}},
	}, d.a.w.request(false)
}

type coreAPI struct {
	coreclient.CoreV1Interface
	a api
}

func (c coreAPI) ConfigMaps(namespace string) coreclient.ConfigMapInterface {
	return configMapsAPI{a: c.a, namespace: namespace}
}

type configMapsAPI struct {
	coreclient.ConfigMapInterface
	a         api
	namespace string
}

// Create is the barrier's dry run.
func (c configMapsAPI) Create(ctx context.Context, cm *corev1.ConfigMap, o metav1.CreateOptions) (*corev1.ConfigMap, error) {
	if len(o.DryRun) == 0 {
		return nil, errors.New("an installer makes no ConfigMap but dry")
	}
	if err := c.a.w.request(false); err != nil {
		return nil, err
	}
	name := cm.Name
	if c.a.planted == oneBarrier {
		name = barrierOfAll
	}
	by := c.a.server.verdict(asked{user: admin, op: "CREATE", resource: "configmaps", namespace: c.namespace, name: name, object: name}).by
	if c.a.planted == noWait || by != "" && c.a.planted == oneBarrier {
		by = c.a.w.newest
	}
	if by != "" {
		return nil, apierrors.NewForbidden(c.a.w.configMaps, cm.Name, fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request", by, by))
	}
	return cm, ctx.Err()
}

type admissionAPI struct {
	admissionclient.AdmissionregistrationV1Interface
	a api
}

func (c admissionAPI) ValidatingAdmissionPolicies() admissionclient.ValidatingAdmissionPolicyInterface {
	return policiesAPI{a: c.a, s: c.a.w.policies}
}

func (c admissionAPI) ValidatingAdmissionPolicyBindings() admissionclient.ValidatingAdmissionPolicyBindingInterface {
	return bindingsAPI{a: c.a, s: c.a.w.bindings}
}

type policiesAPI struct {
	admissionclient.ValidatingAdmissionPolicyInterface
	a api
	s *shelf[*admissionv1.ValidatingAdmissionPolicy]
}

func (c policiesAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*admissionv1.ValidatingAdmissionPolicy, error) {
	return c.s.get(name)
}

func (c policiesAPI) Patch(ctx context.Context, name string, kind types.PatchType, body []byte, o metav1.PatchOptions, _ ...string) (*admissionv1.ValidatingAdmissionPolicy, error) {
	var object admissionv1.ValidatingAdmissionPolicy
	if err := errors.Join(ctx.Err(), decode(kind, body, &object)); err != nil {
		return nil, err
	}
	if o.FieldManager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	if err := c.s.force(name, o, func(was *admissionv1.ValidatingAdmissionPolicy) {
		// A rule more is the other's; applying leaves it.
		if rules := was.Spec.MatchConstraints.ExcludeResourceRules; len(rules) > len(object.Spec.MatchConstraints.ExcludeResourceRules) {
			object.Spec.MatchConstraints.ExcludeResourceRules, object.ManagedFields = rules, was.ManagedFields
		}
	}); err != nil {
		return nil, err
	}
	c.a.w.barrier(name, c.a.planted, &object)
	return c.s.put(name, "", &object)
}

func (c policiesAPI) Update(_ context.Context, object *admissionv1.ValidatingAdmissionPolicy, _ metav1.UpdateOptions) (*admissionv1.ValidatingAdmissionPolicy, error) {
	return c.s.put(object.Name, object.ResourceVersion, object.DeepCopy())
}

func (c policiesAPI) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	return c.s.delete(name, o)
}

func (c policiesAPI) List(context.Context, metav1.ListOptions) (*admissionv1.ValidatingAdmissionPolicyList, error) {
	var list admissionv1.ValidatingAdmissionPolicyList
	for _, o := range c.s.stored {
		list.Items = append(list.Items, *o)
	}
	return &list, c.a.w.request(false)
}

type bindingsAPI struct {
	admissionclient.ValidatingAdmissionPolicyBindingInterface
	a api
	s *shelf[*admissionv1.ValidatingAdmissionPolicyBinding]
}

func (c bindingsAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
	return c.s.get(name)
}

func (c bindingsAPI) Patch(_ context.Context, name string, kind types.PatchType, body []byte, o metav1.PatchOptions, _ ...string) (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
	var object admissionv1.ValidatingAdmissionPolicyBinding
	if err := decode(kind, body, &object); err != nil {
		return nil, err
	}
	if err := c.s.force(name, o, func(was *admissionv1.ValidatingAdmissionPolicyBinding) {
		// Another manager owns the selector; applying keeps it.
		if was.Spec.MatchResources != nil && object.Spec.MatchResources == nil {
			object.Spec.MatchResources, object.ManagedFields = was.Spec.MatchResources, was.ManagedFields
		}
	}); err != nil {
		return nil, err
	}
	return c.s.put(name, "", &object)
}

func (c bindingsAPI) Update(_ context.Context, object *admissionv1.ValidatingAdmissionPolicyBinding, _ metav1.UpdateOptions) (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
	return c.s.put(object.Name, object.ResourceVersion, object.DeepCopy())
}

func (c bindingsAPI) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	return c.s.delete(name, o)
}

func (c bindingsAPI) List(context.Context, metav1.ListOptions) (*admissionv1.ValidatingAdmissionPolicyBindingList, error) {
	var list admissionv1.ValidatingAdmissionPolicyBindingList
	for _, o := range c.s.stored {
		list.Items = append(list.Items, *o)
	}
	return &list, c.a.w.request(false)
}

func decode(kind types.PatchType, body []byte, into runtime.Object) error {
	if kind != types.ApplyPatchType {
		return fmt.Errorf("an installer applies, and does not patch by %s", kind)
	}
	return json.Unmarshal(body, into)
}
