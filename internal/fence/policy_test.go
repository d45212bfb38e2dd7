package fence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func good() fence.Declaration {
	return fence.Declaration{
		Election: "istio-leader", Namespace: "istio-system", Lock: record.ConfigMap,
		ServiceAccounts: []string{"istio-system/pilot"},
		Guards:          []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	}
}

// render returns the policies of valid declarations.
func render(t *testing.T, set string, declarations ...fence.Declaration) fence.Set {
	t.Helper()
	rendered, err := fence.Render(set, declarations...)
	harness.Must(t, err)
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
		"coordinated":       {func(d *fence.Declaration) { d.Coordinated = true }, []string{`coordinated with lock "configmap"`, "give lease"}},
		"no accounts":       {func(d *fence.Declaration) { d.ServiceAccounts = nil }, []string{"no service accounts", "istio-system/pilot"}},
		"account":           {func(d *fence.Declaration) { d.ServiceAccounts = []string{"pilot"} }, []string{`"pilot"`, "namespace/name"}},
		"account's quote":   {func(d *fence.Declaration) { d.ServiceAccounts = []string{"a/b'"} }, []string{`"a/b'"`}},
		"account, revision": {func(d *fence.Declaration) { d.ServiceAccounts = []string{"a/b-{revision}"} }, []string{"needs revisions"}},
		"others":            {func(d *fence.Declaration) { d.Others = []string{"pilot-*"} }, []string{`others "pilot-*"`, "namespace/name"}},
		"others' star":      {func(d *fence.Declaration) { d.Others = []string{"a/b*c"} }, []string{`others "a/b*c"`}},
		"others' quote":     {func(d *fence.Declaration) { d.Others = []string{"a/b'*"} }, []string{`others "a/b'*"`}},
		"others' prefix":    {func(d *fence.Declaration) { d.Others = []string{"a/pilot-"} }, []string{`others "a/pilot-"`}},
		"others' namespace": {func(d *fence.Declaration) { d.Others = []string{"a/"} }, []string{`others "a/"`}},
		"others, revision":  {func(d *fence.Declaration) { d.Others = []string{"a/b-{revision}"} }, []string{"others", "needs revisions"}},
		"no coordinator":    {func(d *fence.Declaration) { d.Coordinators = []string{""} }, []string{`coordinator ""`}},
		"coordinator":       {func(d *fence.Declaration) { d.Coordinators = []string{"a'b"} }, []string{`coordinator "a'b"`}},
		"nothing":           {func(d *fence.Declaration) { d.Guards, d.WithoutLockGuard = nil, true }, []string{"guards nothing", "withoutLockGuard"}},
		"revision":          {func(d *fence.Declaration) { d.Revisions = []string{"1.2"} }, []string{`revision "1.2"`}},
		"shared revisions":  {func(d *fence.Declaration) { d.Revisions = []string{"a", "b"} }, []string{"share their service accounts", "{revision}"}},
		"no resources":      {func(d *fence.Declaration) { d.Guards[0].Resources = nil }, []string{"no resources", "plural name"}},
		"kind for resource": {func(d *fence.Declaration) { d.Guards[0].Resources = []string{"ConfigMap"} }, []string{`resource "ConfigMap"`, "lower case"}},
		"all resources":     {func(d *fence.Declaration) { d.Guards[0].Resources = []string{"*"} }, []string{"A wildcard for all resources"}},
		"all statuses":      {func(d *fence.Declaration) { d.Guards[0].Resources = []string{"*/status"} }, []string{"A wildcard for all resources"}},
		"some resources":    {func(d *fence.Declaration) { d.Guards[0].Resources = []string{"pods*"} }, []string{`"pods*"`, "invalid name"}},
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
	if _, err := fence.Render("s"); err == nil || !strings.Contains(err.Error(), "no declarations") {
		t.Errorf("no declarations: %v", err)
	}
	if _, err := fence.Render("s", good(), good()); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("declared twice: %v", err)
	}
	for _, name := range []string{"a/b", "a.b", strings.Repeat("n", 64), ""} {
		if _, err := fence.Render(name, good()); err == nil || !strings.Contains(err.Error(), "set name ") {
			t.Errorf("set %q: %v", name, err)
		}
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
			got = append(got, p.Name()[:strings.LastIndex(p.Name(), "-")]+" of "+strings.Join(fence.Locks(p.Policy), ",")+": "+conditions[len(conditions)-1].Expression+" ("+p.Policy.Spec.Validations[0].Message+")")
		}
	}
	want := []string{
		"incumbent-fence.s.collection.deny of configmap istio-system/istio-leader,configmap istio-system/three,configmap istio-system/two: oldObject == null" +
			" || request.userInfo.username in ['system:serviceaccount:istio-system:pilot'] && oldObject.metadata.name in ['x', 'y']" +
			" || request.userInfo.username in ['system:serviceaccount:istio-system:other'] && oldObject.metadata.name in ['x']" +
			" (objects guarded by configmap istio-system/istio-leader, configmap istio-system/three, configmap istio-system/two cannot be deleted as a collection: delete them by name)",
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
	for n, want := range map[int]string{3: "configmap istio-system/two", 5: "configmap istio-system/more-1 and 2 more"} {
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

// With Own, a missing lock rejects only writes of objects with these labels, by a policy of its own.
func TestRender_Own(t *testing.T) {
	d := good()
	d.Guards = []fence.Guard{
		{Resources: []string{"secrets"}, Labels: map[string]string{"a": "b"}, Own: map[string]string{"rev": "x"}},
		{Group: "apps", Resources: []string{"deployments"}, Labels: map[string]string{"a": "b"}, Own: map[string]string{"rev": "x"}},
		{Resources: []string{"configmaps"}, Labels: map[string]string{"c": "d"}},
	}
	var got []string
	for _, p := range render(t, "s", d).Work {
		got = append(got, fmt.Sprint(*p.Binding.Spec.ParamRef.ParameterNotFoundAction, " ", p.Binding.Spec.MatchResources.ObjectSelector.MatchLabels, " ", len(p.Policy.Spec.MatchConstraints.ResourceRules)))
	}
	want := []string{"Allow map[a:b] 1", "Allow map[a:b] 1", "Deny map[c:d] 1", "Deny map[a:b rev:x] 2"}
	if !slices.Equal(got, want) {
		t.Errorf("the policies are %q, want %q", got, want)
	}
	d.Mode = fence.Audit
	if n := len(render(t, "s", d).Work); n != len(want)-1 {
		t.Errorf("in mode audit: %d policies", n)
	}
}
