package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MakeAccess renders the service account and the RBAC objects of a revision, named <name>-<revision>.
func MakeAccess(v Values) (Access, error) {
	if err := v.Validate(); err != nil {
		return Access{}, fmt.Errorf("manifests: %w", err)
	}
	return v.withDefaults().access(), nil
}

// Objects returns the objects in creation order.
func (a Access) Objects() []runtime.Object {
	all := []runtime.Object{a.ServiceAccount, a.Role, a.RoleBinding, a.ClusterRole, a.ClusterRoleBinding}
	if a.Operator != nil {
		all = append(all, a.Operator)
	}
	return all
}

// Make renders all objects of a revision in creation order.
func Make(v Values) ([]runtime.Object, error) {
	access, err := MakeAccess(v)
	if err != nil {
		return nil, err
	}
	v = v.withDefaults()
	return append(append(access.Objects(), v.around()...), v.deployment()), nil
}

// MakeDeployment renders the Deployment <name>-<revision>. Its Pods have the label istio.io/rev.
func MakeDeployment(v Values) (*appsv1.Deployment, error) {
	if err := v.Validate(); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	return v.withDefaults().deployment(), nil
}
