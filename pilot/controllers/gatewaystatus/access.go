package gatewaystatus

import (
	rbacv1 "k8s.io/api/rbac/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// ClusterRules are the rights that a Controller needs, everywhere; makesClass says that it makes the
// class istio where it is missing. Secrets cannot be narrowed to those of certificates by any rule: what
// is read are those of type kubernetes.io/tls, and their keys are dropped at once.
//
// The rights of Config.Tags are not among them.
func ClusterRules(makesClass bool) []rbacv1.PolicyRule {
	read := []string{"list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gatewayclasses", "gateways", "httproutes", "referencegrants"}, Verbs: read},
		{APIGroups: []string{gateway.GroupName}, Resources: []string{"gatewayclasses/status", "gateways/status", "httproutes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "secrets", "services"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	if makesClass {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gateway.GroupName}, Resources: []string{"gatewayclasses"}, Verbs: []string{"create"}})
	}
	return rules
}
