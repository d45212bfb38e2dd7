package reconcile

import (
	"maps"

	"incumbent.dev/incumbent/internal/tagging"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that Istio defines and several controllers use. Existing deployments use them.
const (
	// GatewayController is the controller name of a GatewayClass and in the status of routes, and the field manager of writes.
	GatewayController = "istio.io/gateway-controller"
	// GatewayClass is the name of the class that is served even if the GatewayClass does not exist.
	GatewayClass = "istio"
)

// Inherited returns the metadata of an object with the revision label of its namespace, unless the object has that label.
// namespace has the labels of the namespace.
func Inherited(object metav1.ObjectMeta, namespace map[string]string) metav1.ObjectMeta {
	revision, labelled := namespace[tagging.Label]
	if _, own := object.Labels[tagging.Label]; own || !labelled {
		return object
	}
	object.Labels = maps.Clone(object.Labels)
	metav1.SetMetaDataLabel(&object, tagging.Label, revision)
	return object
}
