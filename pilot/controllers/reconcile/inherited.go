package reconcile

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// revisionLabel names the revision of an object.
const revisionLabel = "istio.io/rev"

// Inherited returns the metadata of an object with the revision label of its namespace, unless the object has that label.
// namespace has the labels of the namespace.
func Inherited(object metav1.ObjectMeta, namespace map[string]string) metav1.ObjectMeta {
	revision, labelled := namespace[revisionLabel]
	if _, own := object.Labels[revisionLabel]; own || !labelled {
		return object
	}
	object.Labels = maps.Clone(object.Labels)
	metav1.SetMetaDataLabel(&object, revisionLabel, revision)
	return object
}
