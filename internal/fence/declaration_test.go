package fence_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/fence"
)

func TestValidate_Accepts(t *testing.T) {
	for name, change := range map[string]func(d *fence.Declaration){
		"a revision in a label": func(d *fence.Declaration) {
			d.Revisions = []string{"stable", "canary"}
			d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Labels: map[string]string{"rev": "{revision}"}}}
		},
		"all accounts of a namespace": func(d *fence.Declaration) { d.Others = []string{"a/*"} },
		"a subresource of the locks' kind, by namespaces": func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps/status"}, Namespaces: []string{"apps"}}
		},
	} {
		d := good()
		change(&d)
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProbes_WithoutObjects(t *testing.T) {
	for resource, kind := range map[string]schema.GroupVersionKind{
		"configmaps": {Version: "v1", Kind: "ConfigMap"}, "secrets": {Version: "v1", Kind: "Secret"}, "serviceaccounts": {Version: "v1", Kind: "ServiceAccount"},
		"leases": {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, "roles": {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		"networkpolicies": {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	} {
		d := good()
		d.Guards = []fence.Guard{{Group: kind.Group, Resources: []string{"others", resource}, Names: []string{"x", "y"}, Namespaces: []string{"n", "m"}, Labels: map[string]string{"a": "b"}}}
		probes := fence.Probes(d)
		if len(probes) != 1 || probes[0].Object == nil {
			t.Errorf("%s: %+v", resource, probes)
			continue
		}
		p := probes[0]
		if p.Where() != "configmap "+d.Namespace+"/"+d.Election {
			t.Errorf("by %s", p.Where())
		}
		if p.Resource != kind.GroupVersion().WithResource(resource) || p.Object.GroupVersionKind() != kind || p.Object.GetName() != "x" || p.Object.GetNamespace() != "n" || p.Object.GetLabels()["a"] != "b" || p.Mode != fence.Deny {
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
