package gatewaydeploy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// children is a child for any object type.
type children interface {
	// latest returns an object of the Gateway's namespace, or nil. See reconcile.Target.Latest.
	latest(of key, name string) (o metav1.Object, known bool)
	// owned returns the managed objects whose owner is a Gateway of this name.
	owned(of key) []metav1.Object
	// write executes a step.
	write(ctx context.Context, client kube.Client, of key, s step) error
}

// child is the cache of one kind of created objects.
type child[T reconcile.Object] struct {
	kind  Kind
	cache *reconcile.Cache[key, T]
}

// watchChild adds a kind. keep drops the fields of managed objects that an apply cannot own. Of other
// objects only the identity is kept.
func watchChild[T reconcile.Object](c *Controller, kind Kind, from reconcile.Source, keep func(T) T) children {
	return child[T]{kind, reconcile.Watch(c.Controller, reconcile.Kind[key, T]{
		Name: kind.Resource().Resource, From: from,
		Keep: func(o T) T { return kept(kind, o, keep) },
		Keys: func(o T) []key {
			return append(c.indexed(byChild, indexed(kind, o.GetNamespace(), o.GetName())), ownerOf(o)...)
		},
		Indexes: map[string]func(T) []string{byOwner: func(o T) (owners []string) {
			for _, of := range ownerOf(o) {
				owners = append(owners, of.String())
			}
			return owners
		}},
	})}
}

// ownerOf returns the Gateway that owns a managed object.
func ownerOf(o metav1.Object) []key {
	if owner := OwnerName(o); owner != "" && o.GetLabels()[ManagedLabel] == ManagedBy {
		return []key{{Namespace: o.GetNamespace(), Name: owner}}
	}
	return nil
}

func kept[T reconcile.Object](kind Kind, o T, keep func(T) T) T {
	if _, managed := o.GetLabels()[ManagedLabel]; managed {
		o = keep(o)
		o.SetManagedFields(ourFields(o.GetManagedFields()))
		return o
	}
	return identityOf(kind, o)
}

// identityOf returns an object with only the identity and the version of another, or nil for nil.
func identityOf[T reconcile.Object](kind Kind, o T) T {
	var none T
	slim, ok := kind.empty().(T)
	if !ok || o == none {
		return none
	}
	slim.SetNamespace(o.GetNamespace())
	slim.SetName(o.GetName())
	slim.SetUID(o.GetUID())
	slim.SetResourceVersion(o.GetResourceVersion())
	return slim
}

func (k child[T]) target(of key, name string) reconcile.Target[key, T] {
	return k.cache.At(of, reconcile.Ref{Namespace: of.Namespace, Name: name})
}

func (k child[T]) latest(of key, name string) (metav1.Object, bool) {
	o, seen := k.target(of, name).Latest()
	var none T
	if o == none {
		return nil, seen
	}
	return o, seen
}

func (k child[T]) owned(of key) (all []metav1.Object) {
	for _, o := range k.cache.By(byOwner, of.String()) {
		all = append(all, o)
	}
	return all
}

func (k child[T]) write(ctx context.Context, client kube.Client, of key, s step) error {
	have, _ := s.read.(T) // not the current cache: the plan was based on this object
	resource := client.Dynamic().Resource(s.Kind.Resource()).Namespace(s.Namespace)
	var got *unstructured.Unstructured
	var err error
	switch s.Action {
	case actionCreate:
		got, err = resource.Create(ctx, &unstructured.Unstructured{Object: s.Document}, metav1.CreateOptions{FieldManager: reconcile.GatewayController})
	case actionDelete:
		err = remove(ctx, resource, s)
	case actionApply, actionLeave:
		got, err = apply(ctx, resource, s)
	}
	var object T
	if got != nil && err == nil {
		object, err = typedAs[T](s.Kind, got)
	}
	switch {
	case err == nil && got == nil:
		k.target(of, s.Name).Behind(have) // until the cache shows the deletion
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the Gateway is deleted too
	}
	// Repairs of an object are equal if they write the same content. The replaced content does not matter.
	return k.target(of, s.Name).Answered(identityOf(s.Kind, have), object, err, fmt.Sprintf("%s %s %s/%s", s.Action, s.Kind, s.Namespace, s.Name))
}

// remove deletes the object that was read.
func remove(ctx context.Context, resource dynamic.ResourceInterface, s step) error {
	version := s.read.GetResourceVersion()
	if s.Document != nil {
		body, err := json.Marshal(s.Document)
		if err != nil {
			return err
		}
		marked, err := resource.Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.GatewayController})
		if err != nil {
			return err
		}
		version = marked.GetResourceVersion()
	}
	return resource.Delete(ctx, s.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: new(s.read.GetUID()), ResourceVersion: new(version)},
	})
}

// apply sends the document, guarded by the version that was read. If needed, it claims the fields of the
// create first. An interruption in between changes no content, and the next attempt continues.
func apply(ctx context.Context, resource dynamic.ResourceInterface, s step) (*unstructured.Unstructured, error) {
	wanted := unstructured.Unstructured{Object: s.Document}
	if s.Claim {
		claimed, err := claim(ctx, resource, s.Name, wanted.GetResourceVersion())
		if err != nil {
			return nil, err
		}
		wanted.SetResourceVersion(claimed.GetResourceVersion())
	}
	body, err := json.Marshal(wanted.Object)
	if err != nil {
		return nil, err
	}
	// Force overwrites fields that another client has changed.
	return resource.Patch(ctx, s.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: reconcile.GatewayController, Force: new(true)})
}

// claim converts the managedFields entry of the create into an entry of an apply. It reads the object,
// because the cache drops the entries of other managers.
func claim(ctx context.Context, resource dynamic.ResourceInterface, name, version string) (*unstructured.Unstructured, error) {
	present, err := resource.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if present.GetResourceVersion() != version {
		return nil, apierrors.NewConflict(Deployment.Resource().GroupResource(), name, fmt.Errorf("version is %s, expected %s", present.GetResourceVersion(), version))
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(present, sets.New(reconcile.GatewayController), reconcile.GatewayController)
	if err != nil || len(patch) == 0 {
		return present, err
	}
	return resource.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: reconcile.GatewayController})
}

// typedAs converts a response.
func typedAs[T reconcile.Object](kind Kind, got *unstructured.Unstructured) (T, error) {
	var none T
	to := kind.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, to); err != nil {
		return none, fmt.Errorf("decode response: %w", err)
	}
	object, ok := to.(T)
	if !ok {
		return none, fmt.Errorf("response is a %T", to)
	}
	return object, nil
}
