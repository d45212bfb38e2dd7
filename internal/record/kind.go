package record

// Kind is the kind of a lock object.
type Kind string

const (
	// Lease has the record in its spec.
	Lease Kind = "lease"
	// ConfigMap has the record in an annotation.
	ConfigMap Kind = "configmap"
)

// Resource returns the API group and the resource.
func (k Kind) Resource() (group, resource string) {
	if k == ConfigMap {
		return "", "configmaps"
	}
	return "coordination.k8s.io", "leases"
}

// Object returns the API version and the kind of an object.
func (k Kind) Object() (apiVersion, kind string) {
	if k == ConfigMap {
		return "v1", "ConfigMap"
	}
	return "coordination.k8s.io/v1", "Lease"
}
