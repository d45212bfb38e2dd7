package gatewaydeploy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// created reports whether an object still has the managedFields entry of our create. An apply would share
// its fields with that entry and could not remove them.
func created(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), byOurCreate)
}

// byOurCreate reports whether an entry belongs to our create.
func byOurCreate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == ControllerName && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

// asApplied returns the object with the entry of our create converted into an entry of an apply, as claim
// does.
func asApplied(o metav1.Object) metav1.Object {
	if !created(o) {
		return o
	}
	entries := o.GetManagedFields()
	changed := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for _, entry := range entries {
		if byOurCreate(entry) {
			entry.Operation = metav1.ManagedFieldsOperationApply
		}
		changed = append(changed, entry)
	}
	object, ok := o.(runtime.Object)
	if !ok {
		return o
	}
	copied, ok := object.DeepCopyObject().(metav1.Object)
	if !ok {
		return o
	}
	copied.SetManagedFields(changed)
	return copied
}
