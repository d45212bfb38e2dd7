package locktest

import (
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The following functions execute one request as the API server does. Each is atomic.
func (s *Store) resource() schema.GroupResource {
	if s.kind == Lease {
		return coordinationv1.Resource("leases")
	}
	return schema.GroupResource{Resource: string(s.kind)}
}

func (s *Store) get(name string) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != Name || s.object == nil {
		return nil, apierrors.NewNotFound(s.resource(), name)
	}
	return clone(s.object), nil
}

func (s *Store) create(by string, obj Object, dryRun bool) (Object, error) {
	obj = clone(obj)
	normalise(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetName() != Name || obj.GetNamespace() != Namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("this store holds %s/%s alone", Namespace, Name))
	}
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if err := s.admit(obj); err != nil {
		return nil, err
	}
	if s.object != nil {
		return nil, apierrors.NewAlreadyExists(s.resource(), Name)
	}
	if dryRun {
		return obj, nil
	}
	return clone(s.put(obj, by)), nil
}

func (s *Store) update(by string, obj Object, dryRun bool) (Object, error) {
	obj = clone(obj)
	normalise(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetName() != Name || s.object == nil && s.kind == ConfigMap {
		return nil, apierrors.NewNotFound(s.resource(), obj.GetName())
	}
	if err := s.precondition(obj); err != nil {
		return nil, err
	}
	if err := s.admit(obj); err != nil {
		return nil, err
	}
	if dryRun {
		return obj, nil
	}
	if s.object == nil { // a PUT may create a Lease
		return clone(s.put(obj, by)), nil
	}
	// A PUT that changes nothing commits nothing: same version, no event.
	if sameContent(s.object, obj) {
		return clone(s.object), nil
	}
	return clone(s.put(obj, by)), nil
}

// precondition checks UID and resourceVersion of a PUT. For a deleted Lease only the UID is checked.
func (s *Store) precondition(obj Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	var present types.UID
	if s.object != nil {
		present = s.object.GetUID()
	}
	if uid != "" && uid != present {
		return apierrors.NewConflict(s.resource(), Name, fmt.Errorf("the UID in the precondition is %s, the object's %q", uid, present))
	}
	switch {
	case s.object == nil:
		return nil
	case version == "" && s.kind == Lease:
		return s.invalid(field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"))
	case version != "" && version != s.object.GetResourceVersion():
		return apierrors.NewConflict(s.resource(), Name, errors.New("the object has been modified"))
	}
	return nil
}

func (s *Store) invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: string(s.kind)}, Name, errs)
}

// admit returns the validation error of the API server.
func (s *Store) admit(obj Object) error {
	var errs field.ErrorList
	if lease, ok := obj.(*coordinationv1.Lease); ok {
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
		return s.invalid(errs...)
	}
	return nil
}

// normalise converts an object to its stored form.
func normalise(obj Object) {
	obj.SetManagedFields(nil)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	for _, t := range []**metav1.MicroTime{&lease.Spec.AcquireTime, &lease.Spec.RenewTime} {
		switch {
		case *t == nil:
		case (*t).IsZero():
			*t = nil
		default:
			*t = &metav1.MicroTime{Time: (*t).UTC().Truncate(time.Microsecond)}
		}
	}
}

// sameContent compares everything that a writer can change.
func sameContent(stored, sent Object) bool {
	a, b := clone(stored), clone(sent)
	for _, obj := range []Object{a, b} {
		obj.SetResourceVersion("")
		obj.SetUID("")
		obj.SetCreationTimestamp(metav1.Time{})
	}
	return equality.Semantic.DeepEqual(a, b)
}
