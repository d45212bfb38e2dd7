package manifests

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/revisions"
)

// manyLocks is the minimum number of elections that share a watch of all Leases of the namespace. A rule cannot restrict
// that watch to names. Without the right each election watches its own lock.
const manyLocks = 4

// Rights are the rights of a revision's servers, in addition to the rights of all servers. bootstrap.Rights returns the
// rights of a configuration.
type Rights struct {
	// ConfigMaps and Leases are the names of lock objects. A server may read and change no other objects of these kinds.
	ConfigMaps, Leases []string
	// Home and Everywhere are the rights of the controllers in the control plane's own namespace and in all namespaces.
	Home, Everywhere []rbacv1.PolicyRule
}

// Add adds further rights.
func (r *Rights) Add(more Rights) {
	r.ConfigMaps, r.Leases = append(r.ConfigMaps, more.ConfigMaps...), append(r.Leases, more.Leases...)
	r.Home, r.Everywhere = append(r.Home, more.Home...), append(r.Everywhere, more.Everywhere...)
}

// NamespaceRules returns the rights in the server's own namespace: its locks, Events about them, and the rights of its
// controllers.
func NamespaceRules(rights Rights) []rbacv1.PolicyRule {
	rules := append(lockRules("", "configmaps", rights.ConfigMaps), lockRules("coordination.k8s.io", "leases", rights.Leases)...)
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "list"}})
	if len(rights.Leases) >= manyLocks {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"watch"}})
	}
	return append(rules, rights.Home...)
}

// lockRules returns the rules for locks of one type. Without locks there are none.
func lockRules(group, resource string, names []string) []rbacv1.PolicyRule {
	if len(names) == 0 {
		return nil
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}},
		{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get", "watch", "update"}},
	}
}

// OperatorRules returns the rights of people that run the commands of electionctl: reading elections, and the verb operate on the
// locks of the revision, which a fence checks.
func OperatorRules(rights Rights) (rules []rbacv1.PolicyRule) {
	add := func(group, resource string, names []string) {
		if len(names) == 0 {
			return // a rule without names would permit all objects
		}
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get", "update", "operate"}})
	}
	add("", "configmaps", rights.ConfigMaps)
	add("coordination.k8s.io", "leases", rights.Leases)
	return append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events", "pods"}, Verbs: []string{"get", "list", "watch"}})
}

// ClusterRules returns the rights in all namespaces: reading the default revision and fences, and the rights of controllers.
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

// Access has the service account and RBAC objects of a revision. Revisions do not share them, because a fence distinguishes
// revisions by their accounts.
type Access struct {
	ServiceAccount     *corev1.ServiceAccount
	Role               *rbacv1.Role
	RoleBinding        *rbacv1.RoleBinding
	ClusterRole        *rbacv1.ClusterRole
	ClusterRoleBinding *rbacv1.ClusterRoleBinding
	// Operator is the Role for people that run commands. Nothing binds it. It is nil without elections.
	Operator *rbacv1.Role
}

func (v Values) access() Access {
	here := v.meta()
	everywhere := here
	// None of the three contains a dot, so the names of installations differ.
	everywhere.Namespace, everywhere.Name = "", here.Name+"."+v.Namespace
	who := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: here.Name, Namespace: v.Namespace}}
	rbac := rbacv1.SchemeGroupVersion.String()
	var operator *rbacv1.Role
	if !v.WithoutElections {
		meta := v.meta()
		meta.Name += "-operator"
		operator = &rbacv1.Role{TypeMeta: kind(rbac, "Role"), ObjectMeta: meta, Rules: OperatorRules(v.Rights)}
	}
	return Access{
		Operator:       operator,
		ServiceAccount: &corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: here},
		Role:           &rbacv1.Role{TypeMeta: kind(rbac, "Role"), ObjectMeta: here, Rules: NamespaceRules(v.Rights)},
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

// selector selects the Pods of a revision.
func (v Values) selector() map[string]string {
	return map[string]string{appLabel: v.Name, revisionLabel: v.Revision}
}

// meta returns the metadata of an object, with a new map of labels.
func (v Values) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: v.Name + "-" + v.Revision, Namespace: v.Namespace,
		Labels: map[string]string{"app.kubernetes.io/name": v.Name, "app.kubernetes.io/part-of": "incumbent", revisionLabel: v.Revision},
	}
}
