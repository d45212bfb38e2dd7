package fence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/fence"
)

func good() fence.Declaration {
	return fence.Declaration{
		Election: "istio-leader", Namespace: "istio-system", Lock: fence.ConfigMap,
		ServiceAccounts: []string{"istio-system/pilot"},
		Guards:          []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	}
}

// render returns the policies of valid declarations.
func render(t *testing.T, set string, declarations ...fence.Declaration) fence.Set {
	t.Helper()
	rendered, err := fence.Render(set, declarations...)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

func TestValidate_Errors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fence.Declaration)
		want   []string
	}{
		"no election":       {func(d *fence.Declaration) { d.Election = "" }, []string{"no election", "such as istio-leader"}},
		"election":          {func(d *fence.Declaration) { d.Election = "A'b" }, []string{`election "A'b"`}},
		"no namespace":      {func(d *fence.Declaration) { d.Namespace = "" }, []string{"no namespace", "istio-system"}},
		"namespace":         {func(d *fence.Declaration) { d.Namespace = "a.b" }, []string{`namespace "a.b"`}},
		"two errors":        {func(d *fence.Declaration) { d.Election, d.Namespace = "", "" }, []string{"no election", "no namespace"}},
		"lock":              {func(d *fence.Declaration) { d.Lock = "endpoints" }, []string{`lock "endpoints"`, "configmap or lease"}},
		"remote":            {func(d *fence.Declaration) { d.Remote = true }, []string{"other clusters", "gate"}},
		"no accounts":       {func(d *fence.Declaration) { d.ServiceAccounts = nil }, []string{"no service accounts", "istio-system/pilot"}},
		"account":           {func(d *fence.Declaration) { d.ServiceAccounts = []string{"pilot"} }, []string{`"pilot"`, "namespace/name"}},
		"account's quote":   {func(d *fence.Declaration) { d.ServiceAccounts = []string{"a/b'"} }, []string{`"a/b'"`}},
		"account, revision": {func(d *fence.Declaration) { d.ServiceAccounts = []string{"a/b-{revision}"} }, []string{"needs revisions"}},
		"others":            {func(d *fence.Declaration) { d.Others = []string{"pilot-*"} }, []string{`others "pilot-*"`, "namespace/name"}},
		"others' star":      {func(d *fence.Declaration) { d.Others = []string{"a/b*c"} }, []string{`others "a/b*c"`}},
		"others' quote":     {func(d *fence.Declaration) { d.Others = []string{"a/b'*"} }, []string{`others "a/b'*"`}},
		"others, revision":  {func(d *fence.Declaration) { d.Others = []string{"a/b-{revision}"} }, []string{"others", "needs revisions"}},
		"coordinator":       {func(d *fence.Declaration) { d.Coordinators = []string{"a'b"} }, []string{`coordinator "a'b"`}},
		"nothing":           {func(d *fence.Declaration) { d.Guards, d.WithoutLockGuard = nil, true }, []string{"guards nothing", "withoutLockGuard"}},
		"revision":          {func(d *fence.Declaration) { d.Revisions = []string{"1.2"} }, []string{`revision "1.2"`}},
		"shared revisions":  {func(d *fence.Declaration) { d.Revisions = []string{"a", "b"} }, []string{"share their service accounts", "{revision}"}},
		"no resources":      {func(d *fence.Declaration) { d.Guards[0].Resources = nil }, []string{"no resources", "plural name"}},
		"kind for resource": {func(d *fence.Declaration) { d.Guards[0].Resources = []string{"ConfigMap"} }, []string{`resource "ConfigMap"`, "lower case"}},
		"verb":              {func(d *fence.Declaration) { d.Guards[0].Verbs = []string{"patch"} }, []string{`verb "patch"`, "is an update"}},
		"name":              {func(d *fence.Declaration) { d.Guards[0].Names = []string{"a'"} }, []string{`name "a'"`}},
		"guard's namespace": {func(d *fence.Declaration) { d.Guards[0].Namespaces = []string{"A"} }, []string{`namespace "A"`}},
		"label":             {func(d *fence.Declaration) { d.Guards[0].Labels = map[string]string{"a b": ""} }, []string{"labels"}},
		"label, revision":   {func(d *fence.Declaration) { d.Guards[0].Labels = map[string]string{"a": "{revision}"} }, []string{"needs revisions"}},
		"wide":              {func(d *fence.Declaration) { d.Guards[0].Names = nil }, []string{"writes of all users", "wide: true"}},
		"mode":              {func(d *fence.Declaration) { d.Mode = "log" }, []string{`mode "log"`, "deny, warn or audit"}},
		"configmaps by namespaces": {func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps"}, Namespaces: []string{"x"}}
		}, []string{"locks of other elections", "names or labels"}},
		"all leases": {func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Group: "coordination.k8s.io", Resources: []string{"leases/*"}, Wide: true}
		}, []string{"locks of other elections"}},
		"all groups": {func(d *fence.Declaration) { d.Guards[0].Group = "*" }, []string{`group "*"`, "one API group"}},
		"a version":  {func(d *fence.Declaration) { d.Guards[0].Versions = []string{"V 1"} }, []string{`version "V 1"`, "such as v1"}},
		"no resource's name": {func(d *fence.Declaration) {
			d.Guards[0].Resources = []string{"config maps", "configmaps/a/b", "configmaps/"}
		}, []string{`"config maps"`, `"configmaps/a/b"`, `"configmaps/"`}},
		"a control character": {func(d *fence.Declaration) { d.Coordinators = []string{"a\rb"} }, []string{`coordinator "a\rb"`}},
		"a label too long with a revision": {func(d *fence.Declaration) {
			d.Revisions = []string{strings.Repeat("r", 60)}
			d.Guards[0].Labels = map[string]string{"app": "revision-{revision}"}
		}, []string{"labels", "63"}},
		"named as a lock": {func(d *fence.Declaration) {
			d.Guards[0] = fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x", d.Election}}
		}, []string{"the name of lock configmap istio-system/", "rename the object"}},
		"too long": {func(d *fence.Declaration) { d.Election = strings.Repeat("a", 240) }, []string{"policy name", "253"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := good()
			c.change(&d)
			_, err := fence.Render("s", d)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
	for name, render := range map[string]func() (fence.Set, error){
		"none":     func() (fence.Set, error) { return fence.Render("s") },
		"twice":    func() (fence.Set, error) { return fence.Render("s", good(), good()) },
		"set name": func() (fence.Set, error) { return fence.Render("a/b", good()) },
	} {
		if _, err := render(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRender_DeniesByDefault(t *testing.T) {
	lease := good()
	lease.Lock, lease.Election = fence.Lease, "other"
	lease.Revisions = []string{"stable", "canary"}
	lease.ServiceAccounts = []string{"istio-system/pilot-{revision}"}
	set := render(t, "s", good(), lease)
	// Each lock has its guard, each place with locks two more: collections and the namespace.
	if len(set.Permanent) != 2 || len(set.Locks) != 6 || len(set.Work) != 6 {
		t.Errorf("%d permanent, %d of locks, %d of work", len(set.Permanent), len(set.Locks), len(set.Work))
	}
	for _, p := range append(set.Locks, set.Work...) {
		if *p.Policy.Spec.FailurePolicy != admissionv1.Fail || !strings.HasPrefix(p.Name(), fence.PolicyPrefix) || p.Binding.Spec.PolicyName != p.Name() {
			t.Errorf("%s: %+v", p.Name(), p.Policy.Spec.FailurePolicy)
		}
		if p.Policy.Labels[fence.SetLabel] != "s" || p.Binding.Labels[fence.SetLabel] != "s" {
			t.Errorf("%s: labels %v", p.Name(), p.Binding.Labels)
		}
		ref := p.Binding.Spec.ParamRef
		if (ref != nil) != (p.Policy.Spec.ParamKind != nil) {
			t.Errorf("%s: params %v", p.Name(), ref)
		}
		if ref == nil {
			continue
		}
		if *ref.ParameterNotFoundAction != admissionv1.DenyAction || ref.Selector != nil || ref.Namespace != "istio-system" {
			t.Errorf("%s: params %+v", p.Name(), ref)
		}
		// A candidate that recreates a missing lock must not be rejected because the lock is missing.
		if left := p.Policy.Spec.MatchConstraints.ExcludeResourceRules; len(left) != 2 || len(left[1].ResourceNames) != 2 {
			t.Errorf("%s: locks are not left out: %+v", p.Name(), left)
		}
	}
	for _, p := range set.Permanent {
		if *p.Policy.Spec.FailurePolicy != admissionv1.Ignore || *p.Binding.Spec.ParamRef.ParameterNotFoundAction != admissionv1.AllowAction || p.Policy.Labels[fence.SetLabel] != "" {
			t.Errorf("%s could refuse, or be removed with the set", p.Name())
		}
	}
}

func TestRender_DuplicateGuards(t *testing.T) {
	twice := good()
	twice.Guards = append(twice.Guards, twice.Guards[0])
	one := render(t, "s", good())
	if two, err := fence.Render("s", twice); err != nil || len(two.All()) != len(one.All()) {
		t.Errorf("%d policies instead of %d, %v", len(two.All()), len(one.All()), err)
	}
}

func TestRender_SharedCollectionPolicy(t *testing.T) {
	one, two, three := good(), good(), good()
	two.Election, two.Mode, two.Guards[0] = "two", fence.Deny, fence.Guard{Resources: []string{"configmaps"}, Names: []string{"y", "x"}} // deny is the default
	three.Election, three.ServiceAccounts = "three", []string{"istio-system/other"}
	set := render(t, "s", one, two, three)
	var got []string
	for _, p := range set.Work {
		if p.Policy.Spec.ParamKind == nil {
			conditions := p.Policy.Spec.MatchConditions
			got = append(got, p.Policy.Annotations[fence.LocksAnnotation]+": "+conditions[len(conditions)-1].Expression+" ("+p.Policy.Spec.Validations[0].Message+")")
		}
	}
	want := []string{
		"configmap istio-system/istio-leader,configmap istio-system/two: oldObject == null || oldObject.metadata.name in ['x', 'y'] (objects guarded by configmap istio-system/istio-leader, configmap istio-system/two cannot be deleted as a collection: delete them by name)",
		"configmap istio-system/three: oldObject == null || oldObject.metadata.name in ['x'] (objects guarded by configmap istio-system/three cannot be deleted as a collection: delete them by name)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	many := []fence.Declaration{one, two}
	for i := range 3 {
		more := good()
		more.Election = fmt.Sprint("more-", i)
		many = append(many, more)
	}
	for n, want := range map[int]string{3: "configmap istio-system/more-0", 5: "configmap istio-system/more-0 and 2 more"} {
		set := render(t, "s", many[:n]...)
		message := set.Work[len(set.Work)-1].Policy.Spec.Validations[0].Message
		if len(set.Work) != n+1 || !strings.HasSuffix(message, want+" cannot be deleted as a collection: delete them by name") {
			t.Errorf("of %d locks: %d policies, %q", n, len(set.Work), message)
		}
	}
	for name, change := range map[string]func(*fence.Declaration){
		"mode":       func(d *fence.Declaration) { d.Mode = fence.Warn },
		"group":      func(d *fence.Declaration) { d.Guards[0].Group = "x" },
		"versions":   func(d *fence.Declaration) { d.Guards[0].Versions = []string{"v1"} },
		"resources":  func(d *fence.Declaration) { d.Guards[0].Resources = []string{"secrets"} },
		"namespaces": func(d *fence.Declaration) { d.Guards[0].Namespaces = []string{"apps"} },
		"labels":     func(d *fence.Declaration) { d.Guards[0].Labels = map[string]string{"a": "b"} },
	} {
		other := good()
		other.Election = "two"
		change(&other)
		if set, err := fence.Render("s", good(), other); err != nil || len(set.Work) != 4 {
			t.Errorf("of another %s: %d policies, %v", name, len(set.Work), err)
		}
	}
}

func TestRender_RulesWithoutDuplicates(t *testing.T) {
	d := good()
	d.Guards = []fence.Guard{{
		Group: "apps", Resources: []string{"deployments/scale", "deployments/*", "deployments", "deployments/*", "deployments"},
		Versions: []string{"v1", "*"}, Names: []string{"x", "y", "x"}, Verbs: []string{"update", "update"},
	}, {Resources: []string{"pods/*"}, Versions: []string{"v1", "v1"}, Names: []string{"x"}, Verbs: []string{"create"}}}
	set := render(t, "s", d)
	for i, want := range []string{"[x y] [UPDATE] [*] [deployments/* deployments]", "[x] [CREATE] [v1] [pods/* bindings]"} {
		rule := set.Work[i].Policy.Spec.MatchConstraints.ResourceRules[0]
		if got := fmt.Sprintf("%v %v %v %v", rule.ResourceNames, rule.Operations, rule.APIVersions, rule.Resources); got != want {
			t.Errorf("got %s instead of %s", got, want)
		}
	}
}
