package install

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
)

// errInterrupted is the error of an installer's requests once it is interrupted.
var errInterrupted = errors.New("interrupted")

// shelf has etcd's objects of one kind, and the events for watchers of it, in order.
type shelf[T storable] struct {
	w      *world
	list   runtime.Object // an empty list
	stored []T            // in order of creation
	events []event[T]
	// raced: another client deletes the object immediately before.
	raced bool
	// remade: another client recreates the object immediately before.
	remade bool
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
		return none, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return s.stored[i], nil
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
		return none, apierrors.NewNotFound(schema.GroupResource{}, name)
	case version != "" && s.stored[i].GetResourceVersion() != version:
		return none, apierrors.NewConflict(schema.GroupResource{}, name, errors.New("it was changed"))
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
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	if s.remade {
		s.stored[i].SetUID(s.stored[i].GetUID() + "-again")
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != s.stored[i].GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("it is another one"))
	}
	s.events = append(s.events, event[T]{object: s.stored[i], gone: true})
	s.stored = slices.Delete(s.stored, i, i+1)
	if s.raced {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return nil
}

// serve responds to a request for objects of the kind.
func (s *shelf[T]) serve(request clienttesting.Action) (runtime.Object, error) {
	switch a := request.(type) {
	case clienttesting.GetActionImpl:
		return s.get(a.Name)
	case clienttesting.CreateActionImpl:
		object := a.Object.DeepCopyObject().(T)
		if object.GetResourceVersion() != "" || a.CreateOptions.FieldManager != fieldManager || s.index(object.GetName()) >= 0 {
			return nil, apierrors.NewBadRequest("an installer creates missing objects, as a field manager")
		}
		return s.put(object.GetName(), "", object)
	case clienttesting.UpdateActionImpl:
		object := a.Object.DeepCopyObject().(T)
		if object.GetResourceVersion() == "" || a.UpdateOptions.FieldManager != fieldManager {
			return nil, apierrors.NewBadRequest("an installer updates one version, as a field manager")
		}
		return s.put(object.GetName(), object.GetResourceVersion(), object)
	case clienttesting.DeleteActionImpl:
		return nil, s.delete(a.Name, a.DeleteOptions)
	case clienttesting.ListActionImpl:
		var items []runtime.Object
		for _, o := range s.stored {
			items = append(items, o)
		}
		list := s.list.DeepCopyObject()
		return list, errors.Join(meta.SetList(list, items), s.w.request(false))
	default:
		return nil, fmt.Errorf("an installer does not %s objects", a.GetVerb())
	}
}

func newPolicies(w *world) *shelf[*admissionv1.ValidatingAdmissionPolicy] {
	return &shelf[*admissionv1.ValidatingAdmissionPolicy]{w: w, list: &admissionv1.ValidatingAdmissionPolicyList{}}
}

func newBindings(w *world) *shelf[*admissionv1.ValidatingAdmissionPolicyBinding] {
	return &shelf[*admissionv1.ValidatingAdmissionPolicyBinding]{w: w, list: &admissionv1.ValidatingAdmissionPolicyBindingList{}}
}

// client returns a client of one API server.
func (w *world) client(s *server) kubernetes.Interface {
	client := newScripted(func(a clienttesting.Action) (runtime.Object, error) {
		switch a.GetResource().Resource {
		case bothPolicies:
			return w.policies.serve(a)
		case bothBindings:
			return w.bindings.serve(a)
		case "configmaps":
			return w.tryBarrier(s, a.(clienttesting.CreateActionImpl))
		}
		return nil, w.request(false) // discovery
	})
	client.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Namespaced: true}, {Name: "secrets", Namespaced: true}, {Name: "islands"}}},
		{GroupVersion: "c.example/v1", APIResources: []metav1.APIResource{{Name: "buoys", Namespaced: true}, {Name: "beacons"}, {Name: "beacons/status"}}},
		{GroupVersion: "rbac.authorization.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "clusterroles"}}},
	}
	return client
}

// tryBarrier is the dry run of a write that the barrier rejects.
func (w *world) tryBarrier(s *server, a clienttesting.CreateActionImpl) (runtime.Object, error) {
	if len(a.CreateOptions.DryRun) == 0 {
		return nil, errors.New("an installer creates ConfigMaps only as dry runs")
	}
	if err := w.request(false); err != nil {
		return nil, err
	}
	name := a.Object.(*corev1.ConfigMap).Name
	if by := s.guarded["configmaps/"+name]; by != "" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request", by, by))
	}
	return a.Object, nil
}
