package gatewaydeploy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// ClusterRules are the rights that a Controller needs, everywhere. No rule can narrow what is made for Gateways to
// its label; a fence can. What is created for the first time is read once more by its name, before it is changed.
func ClusterRules() []rbacv1.PolicyRule {
	reads, writes := []string{"list", "watch"}, []string{"get", "list", "watch", "create", "patch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways", "gatewayclasses"}, Verbs: reads},
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: reads},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: writes},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: writes},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: writes},
	}
}
