package gatewaydeploy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// ClusterRules returns the cluster-wide permissions of a Controller. RBAC cannot limit writes to labelled
// objects; a fence can. The verb get is needed before the first apply of a created object.
func ClusterRules() []rbacv1.PolicyRule {
	reads := []string{"list", "watch"}
	writes := []string{"get", "list", "watch", "create", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways", "gatewayclasses"}, Verbs: reads},
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: reads},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: writes},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: writes},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: writes},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: writes},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: writes},
	}
}
