package manifests

import (
	rbacv1 "k8s.io/api/rbac/v1"

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
