package manifests

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/revisions"
)

// manyLocks is from how many on elections share a watch of all Leases of the namespace,
// which no rule can restrict to names. Without the right each is watched by its own.
const manyLocks = 4

// Rights are what controllers may do, beside what every server may: in the control plane's own
// namespace, and everywhere. bootstrap.Rights lists those of a configuration.
type Rights struct {
	Home, Everywhere []rbacv1.PolicyRule
}

// NamespaceRules are what a server may do in its own namespace: keep these locks, if there are any, write Events
// about them, and what its controllers need.
func NamespaceRules(locks []string, rights Rights) (rules []rbacv1.PolicyRule) {
	if len(locks) > 0 { // without names a rule would be about all objects
		rules = []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: locks, Verbs: []string{"get", "watch", "update"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: locks, Verbs: []string{"get", "watch", "update"}},
		}
	}
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}})
	if len(locks) >= manyLocks {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"watch"}})
	}
	return append(rules, rights.Home...)
}

// ClusterRules are what a server may do everywhere: learn the default revision, see when a
// fence is changed, and what its controllers need.
func ClusterRules(rights Rights) []rbacv1.PolicyRule {
	return append([]rbacv1.PolicyRule{
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
			ResourceNames: []string{revisions.DefaultTagWebhook("")}, Verbs: []string{"get", "list", "watch"},
		},
		{
			APIGroups: []string{"admissionregistration.k8s.io"},
			Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, Verbs: []string{"list", "watch"},
		},
	}, rights.Everywhere...)
}

// Access is who a server is and what it may do. All revisions share it.
type Access struct {
	ServiceAccount     *corev1.ServiceAccount
	Role               *rbacv1.Role
	RoleBinding        *rbacv1.RoleBinding
	ClusterRole        *rbacv1.ClusterRole
	ClusterRoleBinding *rbacv1.ClusterRoleBinding
}

func (v Values) access() Access {
	here := v.meta(v.Name)
	everywhere := here
	everywhere.Namespace, everywhere.Name = "", v.Name+"-"+v.Namespace
	who := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: v.Name, Namespace: v.Namespace}}
	rbac := rbacv1.SchemeGroupVersion.String()
	return Access{
		ServiceAccount: &corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: here},
		Role:           &rbacv1.Role{TypeMeta: kind(rbac, "Role"), ObjectMeta: here, Rules: NamespaceRules(v.Locks, v.Rights)},
		RoleBinding: &rbacv1.RoleBinding{
			TypeMeta: kind(rbac, "RoleBinding"), ObjectMeta: here, Subjects: who,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: here.Name},
		},
		ClusterRole: &rbacv1.ClusterRole{TypeMeta: kind(rbac, "ClusterRole"), ObjectMeta: everywhere, Rules: ClusterRules(v.Rights)},
		ClusterRoleBinding: &rbacv1.ClusterRoleBinding{
			TypeMeta: kind(rbac, "ClusterRoleBinding"), ObjectMeta: everywhere, Subjects: who,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: everywhere.Name},
		},
	}
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}

func (v Values) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: v.Namespace,
		Labels: map[string]string{"app.kubernetes.io/name": v.Name, "app.kubernetes.io/part-of": "incumbent"},
	}
}
