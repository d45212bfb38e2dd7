package fence_test

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/fence"
)

func TestValidate_Accepts(t *testing.T) {
	for name, change := range map[string]func(d *fence.Declaration){
		"as many labels as names": func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Labels: map[string]string{"a": "b"}}
		},
		"labels alone": func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps"}, Labels: map[string]string{"a": "b"}}
		},
		"a revision in a label": func(d *fence.Declaration) {
			d.Revisions = []string{"stable", "canary"}
			d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Labels: map[string]string{"rev": "{revision}"}}}
		},
		"a subresource of the locks' kind, by namespaces": func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps/status"}, Namespaces: []string{"apps"}}
		},
		"deny, said so": func(d *fence.Declaration) { d.Mode = fence.Deny },
	} {
		d := good()
		change(&d)
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRender_DefaultMode(t *testing.T) {
	said := good()
	said.Mode = fence.Deny
	a := render(t, "s", good())
	b := render(t, "s", said)
	if len(a.All()) != len(b.All()) {
		t.Fatalf("%d policies and %d", len(a.All()), len(b.All()))
	}
	for i, p := range a.All() {
		if p.Name() != b.All()[i].Name() {
			t.Errorf("%s and %s", p.Name(), b.All()[i].Name())
		}
	}
}

func TestValidate_MissingFields(t *testing.T) {
	d := good()
	d.Election, d.Namespace = "", ""
	err := d.Validate()
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestProbes_WithoutObjects(t *testing.T) {
	for resource, group := range map[string]string{
		"configmaps": "", "secrets": "", "serviceaccounts": "", "leases": "coordination.k8s.io", "roles": "rbac.authorization.k8s.io", "networkpolicies": "networking.k8s.io",
	} {
		d := good()
		d.Guards = []fence.Guard{{Group: group, Resources: []string{"others", resource}, Names: []string{"x", "y"}, Namespaces: []string{"n", "m"}, Labels: map[string]string{"a": "b"}}}
		probes := fence.Probes(d)
		if len(probes) != 1 || probes[0].Object == nil {
			t.Errorf("%s: %+v", resource, probes)
			continue
		}
		p := probes[0]
		if p.Where() != "configmap "+d.Namespace+"/"+d.Election {
			t.Errorf("by %s", p.Where())
		}
		if p.Resource.Resource != resource || p.Resource.Group != group || p.Object.GetName() != "x" || p.Object.GetNamespace() != "n" || p.Object.GetLabels()["a"] != "b" || p.Mode != fence.Deny {
			t.Errorf("%s: %+v", resource, p)
		}
		d.Guards[0].Verbs = []string{"delete"}
		if p := fence.Probes(d)[0]; p.Object != nil {
			t.Errorf("%s is not guarded when it is made, and would be tried by making one", resource)
		}
		d.Guards[0].Verbs, d.Guards[0].Versions = nil, []string{"v9"}
		if p := fence.Probes(d)[0]; p.Object != nil {
			t.Errorf("%s is guarded in another version alone", resource)
		}
	}
	d := good()
	d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Labels: map[string]string{"a": "b"}}}
	if p := fence.Probes(d)[0]; p.Object.GetName() != "incumbent-fence-probe" || p.Object.GetNamespace() != d.Namespace {
		t.Errorf("without names and namespaces: %v", p.Object)
	}
}
