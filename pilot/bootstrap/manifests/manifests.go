package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MakeAccess makes what the servers of a revision are and may do: <name>-<revision>.
func MakeAccess(v Values) (Access, error) {
	if err := v.Validate(); err != nil {
		return Access{}, fmt.Errorf("manifests: %w", err)
	}
	return v.withDefaults().access(), nil
}

// Objects lists them in the order in which to create them.
func (a Access) Objects() []runtime.Object {
	return []runtime.Object{a.ServiceAccount, a.Role, a.RoleBinding, a.ClusterRole, a.ClusterRoleBinding}
}

// Make makes all objects of a revision, in the order in which to create them.
func Make(v Values) ([]runtime.Object, error) {
	access, err := MakeAccess(v)
	if err != nil {
		return nil, err
	}
	v = v.withDefaults()
	return append(append(access.Objects(), v.around()...), v.deployment()), nil
}

// MakeDeployment makes a revision's Deployment: <name>-<revision>, whose Pods carry the
// label istio.io/rev.
func MakeDeployment(v Values) (*appsv1.Deployment, error) {
	if err := v.Validate(); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	return v.withDefaults().deployment(), nil
}
