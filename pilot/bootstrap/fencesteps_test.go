package bootstrap

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
)

// What an administrator does with a fence, step by step, on a real API server. That the flags mean
// these fields is tried with the program itself.
func TestFenceConfigStepByStep(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	base := FenceConfig{RESTConfig: e.cluster.Admin(), Namespace: e.home, Revisions: only, Lock: "lease"}
	with := func(change func(*FenceConfig)) FenceConfig {
		c := base
		change(&c)
		return c
	}
	unclear := with(func(c *FenceConfig) { c.AllowUnclear = true })
	for i, step := range []struct {
		command string
		config  FenceConfig
		says    []string
		without string
		wrong   string // what the error says; "": there is none
	}{
		{"verify", unclear, []string{"FAILS"}, "holds  policy", "does not stand"},
		{"install", base, []string{"applied "}, "holds ", ""},
		// The service account is not there, so that some of it cannot be tried.
		{"install", with(func(c *FenceConfig) { c.Wait, c.AllowUnclear = time.Minute, true }), []string{"unchanged ", "holds "}, "FAILS", ""},
		{"install", with(func(c *FenceConfig) { c.Wait = time.Minute }), []string{"unchanged ", "holds "}, "FAILS", "--allow-unclear"},
		{"verify", unclear, []string{"holds "}, "FAILS", ""},
		{"verify", base, []string{"holds "}, "FAILS", "--allow-unclear"},
		{"verify", with(func(c *FenceConfig) { c.Strict, c.AllowUnclear = true, true }), []string{"holds "}, "FAILS", "--strict"},
		{"verify", with(func(c *FenceConfig) { c.AllowUnclear, c.Output = true, "json" }), []string{`"verdict": "holds"`}, "holds  ", ""},
		{"verify", with(func(c *FenceConfig) { c.AllowUnclear, c.APIServers = true, []string{"https://127.0.0.1:1"} }), []string{"holds "}, "", "127.0.0.1:1"},
		// Another set would guard the same lock, or the same one would be another's.
		{"install", with(func(c *FenceConfig) { c.Set = e.home + "-2" }), nil, "applied ", "--take-over"},
		{"verify", unclear, []string{"holds "}, "FAILS", ""},
		{"install", with(func(c *FenceConfig) { c.Set, c.TakeOver = e.home+"-2", true }), []string{"applied "}, "", ""},
		{"remove", with(func(c *FenceConfig) { c.Set = e.home + "-2" }), []string{"removed "}, "there is no fence", ""},
		{"remove", base, []string{"there is no fence \"" + e.home + "\"\n"}, "removed ", ""},
	} {
		var out strings.Builder
		err := commands[step.command](step.config, t.Context(), &out)
		if (err == nil) != (step.wrong == "") || err != nil && !strings.Contains(err.Error(), step.wrong) {
			t.Errorf("step %d, %s: error %v, want %q", i, step.command, err, step.wrong)
		}
		for _, want := range step.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("step %d, %s: no %q in\n%s", i, step.command, want, &out)
			}
		}
		if step.without != "" && strings.Contains(out.String(), step.without) {
			t.Errorf("step %d, %s: %q is in\n%s", i, step.command, step.without, &out)
		}
	}
}

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
