package gatewaystatus

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// rights returns each permission as one string.
func rights(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestClusterRules(t *testing.T) {
	var want []string
	for group, resources := range map[string][]string{
		gateway.GroupName: {"gatewayclasses", "gateways", "httproutes", "referencegrants"}, "": {"namespaces", "secrets", "services"}, "apps": {"deployments"},
	} {
		for _, resource := range resources {
			want = append(want, "list "+group+"/"+resource, "watch "+group+"/"+resource)
		}
	}
	for _, resource := range []string{"gatewayclasses", "gateways", "httproutes"} {
		want = append(want, "patch "+gateway.GroupName+"/"+resource+"/status")
	}
	want = append(want, "create /events", "patch /events")
	for createClass, more := range map[bool][]string{false: nil, true: {"create " + gateway.GroupName + "/gatewayclasses"}} {
		want := append(slices.Clone(want), more...)
		slices.Sort(want)
		if got := rights(ClusterRules(createClass)); !slices.Equal(got, want) {
			t.Errorf("createClass %v: %q, want %q", createClass, got, want)
		}
	}
}
