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
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
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

func TestProbes_ValidObjects(t *testing.T) {
	d := good()
	d.Guards = []fence.Guard{{Resources: []string{"services"}, Names: []string{"x"}}, {Group: "apps", Resources: []string{"deployments"}, Names: []string{"x"}}}
	probes := fence.Probes(d)
	var service corev1.Service
	var deployment appsv1.Deployment
	for i, to := range []any{&service, &deployment} {
		harness.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(probes[i].Object.Object, to))
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
		Election: "one", Namespace: "ns", Lock: record.Lease, ServiceAccounts: []string{"ns/a"}, Members: true, Coordinated: true,
		Guards: []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"x"}}},
	}
	two := one
	two.Election = "two"
	two.Mode = fence.Audit
	set, alone := render(t, "ns", two, one), render(t, "ns", one)
	denies := 0
	for _, p := range slices.Concat(set.Locks, set.Work) {
		if p.Binding.Spec.ValidationActions[0] == admissionv1.Deny {
			denies++
			if about := strings.Join(fence.Locks(p.Policy), ","); about != "lease ns/one" {
				t.Errorf("%s about %s denies", p.Name(), about)
			}
		}
	}
	if want := len(alone.Locks) + len(alone.Work); denies != want {
		t.Errorf("%d policies deny, want %d", denies, want)
	}
}
