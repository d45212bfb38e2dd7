package fence_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/fence"
)

func TestValidate_Kinds(t *testing.T) {
	for want, groups := range map[string]map[string][]string{
		"use RBAC instead": {
			"admissionregistration.k8s.io": {"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},
			"authentication.k8s.io":        {"selfsubjectreviews", "tokenreviews"},
			"authorization.k8s.io":         {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
		},
		"it is cluster-scoped": {
			"":                             {"namespaces", "nodes", "persistentvolumes", "componentstatuses"},
			"admissionregistration.k8s.io": {"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
			"apiextensions.k8s.io":         {"customresourcedefinitions"},
			"apiregistration.k8s.io":       {"apiservices"},
			"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles"},
			"rbac.authorization.k8s.io":    {"clusterroles", "clusterrolebindings"},
			"storage.k8s.io":               {"storageclasses", "volumeattachments", "csinodes", "csidrivers"},
			"scheduling.k8s.io":            {"priorityclasses"},
			"networking.k8s.io":            {"ingressclasses", "ipaddresses", "servicecidrs"},
			"node.k8s.io":                  {"runtimeclasses"},
		},
	} {
		for group, resources := range groups {
			for _, resource := range resources {
				d := good()
				d.Guards = []fence.Guard{{Group: group, Resources: []string{resource}, Names: []string{"x"}, Namespaces: []string{"x"}}}
				if err := d.Validate(); err == nil || !strings.Contains(err.Error(), resource) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %q: %v", resource, group, err)
				}
			}
		}
	}
}

func TestValidate_SubresourceLabels(t *testing.T) {
	for resource, accepted := range map[string]bool{
		"pods": true, "pods/status": true, "pods/ephemeralcontainers": true, "pods/resize": true, "namespaces/finalize": true,
		"certificatesigningrequests/approval": true, "deployments/scale": false, "pods/eviction": false, "pods/binding": false, "pods/*": false,
	} {
		d := good()
		d.Guards = []fence.Guard{{Resources: []string{resource}, Labels: map[string]string{"a": "b"}}}
		err := d.Validate()
		if (err == nil) != accepted || err != nil && !strings.Contains(err.Error(), "use a separate guard") {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

func TestRender_NamespacesAndLabels(t *testing.T) {
	d := good()
	d.WithoutLockGuard = true
	d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"x"}, Namespaces: []string{"a"}, Labels: map[string]string{"b": "c"}}}
	set := render(t, "s", d)
	if len(set.Work) < 2 {
		t.Errorf("%d policies, none is of collections", len(set.Work))
	}
	for _, p := range set.Locks {
		if strings.Contains(p.Name(), "lock") {
			t.Errorf("%s guards the lock", p.Name())
		}
	}
	for _, p := range set.Work {
		within := p.Binding.Spec.MatchResources
		if within == nil || len(within.NamespaceSelector.MatchExpressions) != 1 || within.ObjectSelector.MatchLabels["b"] != "c" {
			t.Errorf("%s is narrowed down by %+v", p.Name(), within)
		}
	}
}

func TestValidate_Coordinators(t *testing.T) {
	d := fence.Declaration{
		Election: "e", Namespace: "n", Lock: fence.Lease, ServiceAccounts: []string{"n/b", "n/a"},
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	}
	set := render(t, "s", d)
	for _, p := range set.Work {
		if got := p.Policy.Annotations[fence.AccountsAnnotation]; got != "n/a,n/b" {
			t.Errorf("%s is for %q, in no order", p.Name(), got)
		}
	}
	d.Coordinators = []string{""}
	if _, err := fence.Render("s", d); err == nil || !strings.Contains(err.Error(), `coordinator ""`) {
		t.Errorf("one without a name: %v", err)
	}
}

func TestValidate_NamesTheValue(t *testing.T) {
	for resource, want := range map[string]string{"*": "A wildcard for all resources", "*/status": "A wildcard for all resources", "pods*": "invalid name"} {
		d := good()
		d.Guards = []fence.Guard{{Resources: []string{resource}, Names: []string{"x"}}}
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q", resource, err, want)
		}
	}
	for _, name := range []string{"a.b", strings.Repeat("n", 64), ""} {
		if _, err := fence.Render(name, good()); err == nil || !strings.Contains(err.Error(), "set name ") {
			t.Errorf("a set %q: %v", name, err)
		}
	}
	for others, accepted := range map[string]bool{"a/pilot-*": true, "a/*": true, "a/pilot": true, "a/pilot-": false, "a/": false} {
		d := good()
		d.Others = []string{others}
		if err := d.Validate(); (err == nil) != accepted {
			t.Errorf("others %s: %v", others, err)
		}
	}
}

func TestRender_MatchPolicy(t *testing.T) {
	for group, want := range map[string]admissionv1.MatchPolicyType{"": admissionv1.Exact, "x.y": admissionv1.Equivalent} {
		d := good()
		d.Guards[0].Group = group
		set := render(t, "s", d)
		for _, p := range set.Work {
			if got := *p.Policy.Spec.MatchConstraints.MatchPolicy; got != want {
				t.Errorf("group %q: %s matches %s", group, p.Name(), got)
			}
		}
	}
}

func TestRender_PolicyNames(t *testing.T) {
	one, two, idle := good(), good(), good()
	two.Election, idle.Election, idle.Guards, idle.Namespace = "two", "idle", nil, "elsewhere"
	two.Guards = []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"y"}}}
	for want, declarations := range map[string][]fence.Declaration{
		"incumbent-fence.s.istio-system.istio-leader.configmap.collection-": {one},
		"incumbent-fence.s.collection-":                                     {one, two, idle},
	} {
		set := render(t, "s", declarations...)
		if !slices.ContainsFunc(set.Work, func(p fence.Pair) bool { return strings.HasPrefix(p.Name(), want) }) {
			t.Errorf("none is named %s…", want)
		}
		for _, p := range set.Locks {
			if strings.Contains(p.Name(), "elsewhere.namespace") {
				t.Errorf("%s guards a namespace of which nothing depends", p.Name())
			}
		}
	}
}

func TestProbes_ValidObjects(t *testing.T) {
	d := good()
	d.Guards = []fence.Guard{{Resources: []string{"services"}, Names: []string{"x"}}, {Group: "apps", Resources: []string{"deployments"}, Names: []string{"x"}}}
	probes := fence.Probes(d)
	var service corev1.Service
	var deployment appsv1.Deployment
	for i, to := range []any{&service, &deployment} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(probes[i].Object.Object, to); err != nil {
			t.Fatal(err)
		}
	}
	if spec := service.Spec; spec.Type != corev1.ServiceTypeExternalName || len(validation.IsDNS1123Subdomain(spec.ExternalName)) > 0 {
		t.Errorf("the Service is %+v", spec)
	}
	spec := deployment.Spec
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(spec.Template.Labels)) || *spec.Replicas != 0 {
		t.Errorf("the Deployment is %+v, %v", spec, err)
	}
	if all := spec.Template.Spec.Containers; len(all) != 1 || all[0].Name == "" || all[0].Image == "" {
		t.Errorf("its containers are %+v", all)
	}
}

// An election in mode audit does not weaken the policies of an election in mode deny in the same namespace.
func TestRender_ModesOfOneNamespace(t *testing.T) {
	one := fence.Declaration{
		Election: "one", Namespace: "ns", Lock: fence.Lease, ServiceAccounts: []string{"ns/a"}, Members: true, Coordinated: true,
		Guards: []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"x"}}},
	}
	two := one
	two.Election = "two"
	two.Mode = fence.Audit
	set := render(t, "ns", two, one)
	denied := map[string]bool{}
	for _, p := range slices.Concat(set.Locks, set.Work) {
		about := strings.Split(p.Policy.Annotations[fence.LocksAnnotation], ",")
		deny := slices.Equal(p.Binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny})
		if want := slices.Equal(about, []string{"lease ns/one"}); deny != want {
			t.Errorf("%s about %v: deny is %v", p.Name(), about, deny)
		}
		for _, what := range []string{"lock-", "locks-", "members-", "candidates-", "work-", "namespace-"} {
			denied[what] = denied[what] || deny && strings.Contains(p.Name(), "."+what)
		}
	}
	for what, found := range denied {
		if !found {
			t.Errorf("no policy %s… in mode deny", what)
		}
	}
}
