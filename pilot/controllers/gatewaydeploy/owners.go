package gatewaydeploy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// created tells whether an object still has what our create wrote as the fields of a create. Another
// apply would share them with that entry, and could never take one away.
func created(o metav1.Object) bool {
	for _, entry := range o.GetManagedFields() {
		if byOurCreate(entry) {
			return true
		}
	}
	return false
}

// byOurCreate tells whether an entry is of the create with which an object of ours begins.
func byOurCreate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == ControllerName && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

// asApplied is the object with the fields of our create as those of an apply, which is what becomes of them before
// the first apply. An object has fields of the one or of the other.
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
