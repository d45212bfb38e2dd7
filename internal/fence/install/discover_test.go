package install

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
)

// declaredForTwo are declarations of an election per revision and of a shared one.
func declaredForTwo() []fence.Declaration {
	guard := fence.Guard{Resources: []string{"secrets"}, Labels: map[string]string{"rev": "{revision}"}}
	return []fence.Declaration{
		{Election: "shared", Namespace: home, Lock: record.ConfigMap, ServiceAccounts: []string{"home/p-a", "home/p-b"}, Others: []string{"home/p-*"}, Guards: []fence.Guard{configMap()}, Members: true},
		{Election: "each", Namespace: home, Lock: record.Lease, Revisions: []string{"b", "a"}, ServiceAccounts: []string{"home/p-{revision}"}, Guards: []fence.Guard{guard}, Members: true, Mode: fence.Warn},
		{Election: "elsewhere", Namespace: work, Lock: record.Lease, ServiceAccounts: []string{"home/p-a"}},
	}
}

// The policies contain their declarations.
func TestDiscover_Stored(t *testing.T) {
	names := func(set fence.Set) (names []string) {
		for _, p := range set.All() {
			names = append(names, p.Name())
		}
		slices.Sort(names)
		return names
	}
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(1), render(t, "s", declaredForTwo()...)
		client := w.clients()[0]
		if _, err := Apply(t.Context(), client, set); err != nil {
			t.Fatal(err)
		}
		config := Config{Namespace: work, Set: "s", Stored: true}
		there, err := bySet(t.Context(), client)
		found := Discover(work, there)
		if err != nil || len(found) != 1 || found[0].Err != nil || found[0].Name != "s" || found[0].Repair != "electionctl fence install -n work --set s --stored" {
			t.Fatalf("%+v, %v", found, err)
		}
		for i, p := range found[0].Set.All() {
			if !reflect.DeepEqual(p, set.All()[i]) {
				t.Errorf("%s differs from %s", p.Name(), set.All()[i].Name())
			}
		}
		if found := Discover("another", there); len(found) > 0 {
			t.Errorf("in another namespace: %+v", found)
		}
		config.Mode = "deny"
		denying, declarations, err := config.stored(t.Context(), client)
		if err != nil || slices.Equal(names(denying), names(set)) || slices.ContainsFunc(declarations, func(d fence.Declaration) bool { return d.Mode != fence.Deny }) {
			t.Errorf("in mode deny: %+v, %v", declarations, err)
		}
		config.Set = "t"
		if _, _, err := config.stored(t.Context(), client); err == nil || !strings.Contains(err.Error(), `--stored: fence "t" is not installed`) {
			t.Errorf("not installed: %v", err)
		}
	})
}

// Policies without common declarations are reported with the command that replaces them.
func TestDiscover_WithoutDeclarations(t *testing.T) {
	for name, x := range map[string]struct {
		change       func(p *admissionv1.ValidatingAdmissionPolicy)
		want, repair string
	}{
		"no declarations": {func(p *admissionv1.ValidatingAdmissionPolicy) { p.Annotations = nil }, "not have the same declarations", "electionctl fence install -n home --set home"},
		"of a chart": {func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Annotations = map[string]string{"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "home"}
		}, "not have the same declarations", "helm upgrade r deploy/charts/pilot --namespace home --reset-then-reuse-values"},
		"other declarations": {func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Annotations = simple(t, home, "home/p2").Locks[0].Policy.Annotations
		}, "an installation was interrupted or is in progress", "electionctl fence install -n home --set home"},
		"not JSON": {func(p *admissionv1.ValidatingAdmissionPolicy) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, fence.DeclarationsAnnotation, "x")
		}, "decode annotation incumbent.dev/fence-declarations", "electionctl fence install -n home --set home"},
	} {
		t.Run(name, func(t *testing.T) {
			var installed []admissionv1.ValidatingAdmissionPolicy
			for _, p := range simple(t, home, "home/p1").Locks {
				installed = append(installed, *p.Policy)
			}
			x.change(&installed[1])
			d := discovered(home, home, installed)
			if d.Err == nil || !strings.Contains(d.Err.Error(), x.want) || !strings.HasSuffix(d.Repair, x.repair) && !strings.Contains(d.Repair, "helm upgrade r ") || len(d.Set.All()) > 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}
