package gatewaystatus

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// ClusterRules returns the cluster-wide permissions of a Controller, except those of Config.Tags. With
// createClass, they include the creation of the class istio. RBAC cannot limit access to Secrets by
// type. The controller reads Secrets of type kubernetes.io/tls and drops their keys immediately.
func ClusterRules(createClass bool) []rbacv1.PolicyRule {
	read := []string{"list", "watch"}
	kinds := []string{"gatewayclasses", "gateways", "referencegrants"}
	statuses := []string{"gatewayclasses/status", "gateways/status"}
	for _, resource := range slices.Sorted(maps.Values(routeKinds)) {
		kinds = append(kinds, resource)
		statuses = append(statuses, resource+"/status")
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{gateway.GroupName}, Resources: kinds, Verbs: read},
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways"}, Verbs: []string{"get"}},
		{APIGroups: []string{gateway.GroupName}, Resources: statuses, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "secrets", "services"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	if createClass {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gateway.GroupName}, Resources: []string{"gatewayclasses"}, Verbs: []string{"create"}})
	}
	return rules
}
