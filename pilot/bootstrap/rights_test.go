package bootstrap

import (
	"reflect"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
)

// What the rows' controllers may do, word by word. That they may do no more is asked of a real API
// server as well.
func TestRightsOfTheRows(t *testing.T) {
	read, core, net, apps, gateway := []string{"list", "watch"}, []string{""}, []string{"networking.k8s.io"}, []string{"apps"}, []string{"gateway.networking.k8s.io"}
	hooks, events, change := []string{"admissionregistration.k8s.io"}, []string{"create", "patch"}, []string{"get", "list", "watch", "create", "patch"}
	status := []rbacv1.PolicyRule{
		{APIGroups: gateway, Resources: []string{"gatewayclasses", "gateways", "httproutes", "referencegrants"}, Verbs: read},
		{APIGroups: gateway, Resources: []string{"gatewayclasses/status", "gateways/status", "httproutes/status"}, Verbs: []string{"patch"}},
		{APIGroups: core, Resources: []string{"namespaces", "secrets", "services"}, Verbs: read},
		{APIGroups: apps, Resources: []string{"deployments"}, Verbs: read},
		{APIGroups: core, Resources: []string{"events"}, Verbs: events},
	}
	for name, test := range map[string]struct{ got, want manifests.Rights }{
		"namespace controller": {namespaceRights(Config{}), manifests.Rights{Everywhere: []rbacv1.PolicyRule{
			{APIGroups: core, Resources: []string{"namespaces"}, Verbs: read},
			{APIGroups: core, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: core, Resources: []string{"configmaps"}, ResourceNames: []string{"istio-ca-root-cert"}, Verbs: []string{"list", "watch", "patch"}},
		}}},
		"ingress controller": {ingressRights(Config{IngressService: "a-service"}), manifests.Rights{
			Home: []rbacv1.PolicyRule{
				{APIGroups: core, Resources: []string{"services"}, ResourceNames: []string{"a-service"}, Verbs: read},
				{APIGroups: core, Resources: []string{"pods"}, Verbs: read},
			},
			Everywhere: []rbacv1.PolicyRule{
				{APIGroups: net, Resources: []string{"ingresses", "ingressclasses"}, Verbs: read},
				{APIGroups: net, Resources: []string{"ingresses/status"}, Verbs: []string{"patch"}},
				{APIGroups: core, Resources: []string{"nodes"}, Verbs: read},
				{APIGroups: core, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			},
		}},
		"gateway status, without a class": {gatewayStatusRights(Config{DisableGatewayClass: true}), manifests.Rights{Everywhere: status}},
		"gateway status": {gatewayStatusRights(Config{}), manifests.Rights{Everywhere: append(slices.Clone(status),
			rbacv1.PolicyRule{APIGroups: gateway, Resources: []string{"gatewayclasses"}, Verbs: []string{"create"}})}},
		"gateway deployment": {gatewayDeploymentRights(Config{}), manifests.Rights{Everywhere: []rbacv1.PolicyRule{
			{APIGroups: gateway, Resources: []string{"gateways", "gatewayclasses"}, Verbs: read},
			{APIGroups: gateway, Resources: []string{"gateways"}, Verbs: []string{"patch"}},
			{APIGroups: core, Resources: []string{"configmaps", "namespaces"}, Verbs: read},
			{APIGroups: core, Resources: []string{"services"}, Verbs: change},
			{APIGroups: core, Resources: []string{"serviceaccounts"}, Verbs: change},
			{APIGroups: apps, Resources: []string{"deployments"}, Verbs: change},
			{APIGroups: core, Resources: []string{"events"}, Verbs: events},
		}}},
		"tags": {tagRights(), manifests.Rights{
			Home: []rbacv1.PolicyRule{{APIGroups: core, Resources: []string{"services"}, Verbs: read}},
			Everywhere: []rbacv1.PolicyRule{
				{APIGroups: hooks, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: read},
				{APIGroups: hooks, Resources: []string{"validatingwebhookconfigurations"}, ResourceNames: []string{"istiod-default-validator"}, Verbs: read},
			},
		}},
		"locks of a revision": {
			locksOf(Config{Revision: "r"}), manifests.Rights{
				ConfigMaps: []string{"istio-namespace-controller-election", "istio-leader", "istio-gateway-status-leader"},
				Leases:     []string{"istio-namespace-controller-election", "istio-leader", "istio-gateway-status-leader-r", "istio-gateway-deployment-r"},
			},
		},
		"locks without elections": {locksOf(Config{DisableElections: true}), manifests.Rights{}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s: got %+v\nwant %+v", name, test.got, test.want)
		}
	}
}

// locksOf are the locks alone.
func locksOf(c Config) manifests.Rights {
	all := Rights(c)
	return manifests.Rights{ConfigMaps: all.ConfigMaps, Leases: all.Leases}
}

// Of the locks within a revision a fence judges by one.
func TestTheGuardedLeases(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"a fence":             {Config{Fence: true, Revision: "canary"}, []string{"istio-gateway-deployment-canary"}},
		"without a revision":  {Config{Fence: true}, []string{"istio-gateway-deployment-default"}},
		"no fence":            {Config{Revision: "canary"}, nil},
		"a fence, none elect": {Config{Fence: true, DisableElections: true, Revision: "canary"}, nil},
	} {
		if got := GuardedLeases(c.config); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
