package gatewaydeploy

import (
	"slices"
	"testing"

	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

func TestClusterRules(t *testing.T) {
	var got, want []string
	for _, rule := range ClusterRules() {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					got = append(got, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	for _, read := range []string{gateway.GroupName + "/gateways", gateway.GroupName + "/gatewayclasses", "/configmaps", "/namespaces"} {
		want = append(want, "list "+read, "watch "+read)
	}
	want = append(want, "patch "+gateway.GroupName+"/gateways")
	for _, written := range []string{"/services", "/serviceaccounts", "apps/deployments"} {
		for _, verb := range []string{"get", "list", "watch", "create", "patch"} {
			want = append(want, verb+" "+written)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
