package fence_test

import (
	"bytes"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestRender_Golden(t *testing.T) {
	configMap := good()
	configMap.Coordinators = []string{"system:apiserver"}
	configMap.Guards = []fence.Guard{
		{Resources: []string{"configmaps"}, Names: []string{"x", "y"}, Namespaces: []string{"apps"}},
		{Resources: []string{"secrets"}, Labels: map[string]string{"app": "x"}, Verbs: []string{"create", "update"}, Versions: []string{"v1"}},
		{Resources: []string{"pods/binding", "pods/exec"}, Verbs: []string{"create", "connect"}, Namespaces: []string{"apps"}},
		{Group: "apps", Resources: []string{"deployments/scale"}, Wide: true},
		{Resources: []string{"services"}, Names: []string{"x"}, Verbs: []string{"create"}}, // nothing to delete
		{Resources: []string{"services"}, Names: []string{"y"}, Verbs: []string{"delete"}},
	}
	lease := good()
	lease.Lock, lease.Election, lease.Mode = record.Lease, "other", fence.Warn
	lease.Members = true
	perRevision := good()
	perRevision.Lock, perRevision.Election, perRevision.Mode = record.Lease, "each", fence.Audit
	perRevision.Revisions, perRevision.ServiceAccounts = []string{"stable"}, []string{"istio-system/pilot-{revision}"}
	perRevision.Others = []string{"istio-system/twin-{revision}", "istio-system/pilot-*"}
	coordinated := good()
	coordinated.Lock, coordinated.Election, coordinated.Coordinated, coordinated.Members = record.Lease, "chosen", true, true
	coordinated.Namespace, coordinated.Guards = "idle", nil // deleting the namespace prevents no write
	open := good()
	open.Namespace, open.WithoutLockGuard, open.ServiceAccounts = "open", true, []string{"open/b", "open/a"}
	narrow := fence.Guard{Resources: []string{"secrets"}, Names: []string{"x"}, Namespaces: []string{"apps"}, Labels: map[string]string{"a": "b"}}
	open.Guards = []fence.Guard{
		narrow, narrow, // a policy cannot be installed twice
		{
			Group: "apps", Resources: []string{"deployments/scale", "deployments/*", "deployments", "deployments/*", "deployments"},
			Versions: []string{"v1", "*"}, Names: []string{"x", "y", "x"}, Verbs: []string{"update", "update"},
		},
		{Resources: []string{"pods/*"}, Versions: []string{"v1", "v1"}, Names: []string{"x"}, Verbs: []string{"create"}},
	}
	set := render(t, "s", configMap, lease, perRevision, coordinated, open)
	barrier, _ := fence.Barrier("s", "0123", "default")
	var got bytes.Buffer
	for _, p := range append(set.All(), barrier) {
		for _, object := range []any{p.Policy, p.Binding} {
			text, err := yaml.Marshal(object)
			harness.Must(t, err)
			got.WriteString("---\n")
			got.Write(text)
		}
	}
	golden.File(t, "testdata/rendered.yaml", got.String())
}

func FuzzDeclarations(f *testing.F) {
	f.Add("s", "e", "ns", "lease", "ns/a", "configmaps", "", "x", "", "deny", "create", false)
	f.Add("s", "e", "ns", "configmap", "ns/a", "deployments/scale", "apps", "", "ns", "audit", "update", true)
	f.Add("s", "e'", "ns", "lease", "ns/a-{revision}", "*", "", "", "", "warn", "connect", true)
	f.Fuzz(func(t *testing.T, set, election, namespace, lock, account, resource, group, name, in, mode, verb string, wide bool) {
		g := fence.Guard{Group: group, Resources: []string{resource}, Verbs: []string{verb}, Wide: wide}
		if name != "" {
			g.Names = []string{name}
		}
		if in != "" {
			g.Namespaces = []string{in}
		}
		d := fence.Declaration{Election: election, Namespace: namespace, Lock: record.Kind(lock), ServiceAccounts: []string{account}, Mode: fence.Mode(mode), Guards: []fence.Guard{g}}
		rendered, err := fence.Render(set, d)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, p := range rendered.All() {
			if names[p.Name()] {
				t.Errorf("two policies are called %s", p.Name())
			}
			names[p.Name()] = true
			if p.Name() != p.Binding.Name || p.Binding.Spec.PolicyName != p.Name() || len(p.Policy.Spec.MatchConstraints.ResourceRules) == 0 {
				t.Errorf("%s: %+v", p.Name(), p.Binding)
			}
		}
		again, err := fence.Render(set, d)
		if err != nil || len(again.All()) != len(rendered.All()) || again.Work[0].Name() != rendered.Work[0].Name() {
			t.Errorf("rendered again, it is another: %v", err)
		}
		other := d
		other.Guards = append([]fence.Guard{{Resources: []string{"secrets"}, Names: []string{"first"}}}, d.Guards...)
		if inserted, err := fence.Render(set, other); err != nil {
			t.Errorf("with a guard put first: %v", err)
		} else if first := rendered.Work[0].Name(); !slices.ContainsFunc(inserted.Work, func(p fence.Pair) bool { return p.Name() == first }) {
			t.Errorf("with a guard put first, %s is another", first)
		}
	})
}
