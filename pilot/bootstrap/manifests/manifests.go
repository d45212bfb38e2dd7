package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// MakeAccess makes what all revisions share.
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

// MakeDeployment makes a revision's Deployment: <name>-<revision>, whose Pods carry the
// label istio.io/rev.
func MakeDeployment(v Values, revision string) (*appsv1.Deployment, error) {
	if err := v.Validate(); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	for _, problem := range validation.IsDNS1123Label(revision) {
		return nil, fmt.Errorf("manifests: revision %q: %s", revision, problem)
	}
	return v.withDefaults().deployment(revision), nil
}
