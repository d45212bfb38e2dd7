package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// pair is a policy and its binding in the chart, with placeholders.
type pair struct {
	Name string `json:"name"`
	// Variants are the lock types and disabled controllers of the fences that contain the policy.
	Variants []string `json:"variants"`
	// Keeps marks a permanent policy, which belongs to no release. Denies marks a policy of fences in mode deny.
	Keeps  bool `json:"keeps,omitempty"`
	Denies bool `json:"denies,omitempty"`
	// Locks are the locks whose declarations the policy contains.
	Locks   []string       `json:"locks,omitempty"`
	Policy  map[string]any `json:"policy"`
	Binding map[string]any `json:"binding"`
}

// modeFields are the fields of a policy and its binding that depend on the mode.
type modeFields struct {
	FailurePolicy *admissionv1.FailurePolicyType           `json:"the-failure-policy"`
	Actions       []admissionv1.ValidationAction           `json:"the-actions"`
	Missing       *admissionv1.ParameterNotFoundActionType `json:"the-missing"`
}

func plain(t testing.TB, value any) (content map[string]any) {
	t.Helper()
	raw, err := json.Marshal(value)
	harness.Must(t, err)
	harness.Must(t, json.Unmarshal(raw, &content))
	return content
}

func (p pair) like(other pair) bool {
	p.Variants, other.Variants = nil, nil
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// coordinators returns the coordinators that a coordinated fence of the chart accepts in addition to its candidates.
func coordinators(coordinated bool) []string {
	if !coordinated {
		return nil
	}
	return []string{"system:apiserver"}
}

// variant returns the policies of a variant of the chart.
func variant(t *testing.T, lock, without, mode string) fence.Set {
	t.Helper()
	kind, coordinated := strings.CutSuffix(lock, " coordinated")
	config := install.Config{
		Namespace: "the-namespace", Lock: kind, Mode: mode, Coordinated: coordinated, Coordinators: coordinators(coordinated), ServiceAccounts: []string{"the-account"}, Others: []string{"the-others"},
		Revisions: []string{"the-revision"}, Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayDeployment: without != ""}),
	}
	declarations, err := config.Declarations()
	harness.Must(t, err)
	set, err := fence.Render("the-set", declarations...)
	harness.Must(t, err)
	return set
}

// withPlaceholders replaces the fields that depend on the mode.
func withPlaceholders(p fence.Pair) {
	policy, missing := admissionv1.FailurePolicyType("the-failure-policy"), admissionv1.ParameterNotFoundActionType("the-missing")
	p.Policy.Spec.FailurePolicy = &policy
	p.Binding.Spec.ValidationActions = []admissionv1.ValidationAction{"the-actions"}
	if ref := p.Binding.Spec.ParamRef; ref != nil && *ref.ParameterNotFoundAction == admissionv1.DenyAction {
		p.Binding.Spec.ParamRef.ParameterNotFoundAction = &missing
	}
}

// The chart contains the policies that package fence renders.
func TestChart_Fence(t *testing.T) {
	var chart struct {
		Modes map[string]modeFields `json:"modes"`
		// Declarations are the declarations of each variant, by lock.
		Declarations map[string]map[string]string `json:"declarations"`
		Policies     []pair                       `json:"policies"`
	}
	chart.Modes, chart.Declarations = map[string]modeFields{}, map[string]map[string]string{}
	for _, mode := range []string{"deny", "warn", "audit"} {
		p := variant(t, "configmap", "", mode).Work[0]
		chart.Modes[mode] = modeFields{p.Policy.Spec.FailurePolicy, p.Binding.Spec.ValidationActions, p.Binding.Spec.ParamRef.ParameterNotFoundAction}
	}
	for _, lock := range []string{"configmap", "lease", "lease coordinated", "multi"} {
		for _, without := range []string{"", " without gateway deployment"} {
			set, declared := variant(t, lock, without, "deny"), map[string]string{}
			chart.Declarations[lock+without] = declared
			for i, p := range set.All() {
				one := pair{Name: p.Name(), Variants: []string{lock + without}, Keeps: i < len(set.Permanent)}
				if !one.Keeps {
					withPlaceholders(p)
					one.Name = strings.Replace(one.Name, ".deny-", ".the-mode-", 1)
					one.Denies = strings.Contains(one.Name, ".namespace.") || strings.Contains(one.Name, ".exists.")
					one.Locks = fence.Locks(p.Policy)
					var texts []json.RawMessage
					harness.Must(t, json.Unmarshal([]byte(p.Policy.Annotations[fence.DeclarationsAnnotation]), &texts))
					for i, lock := range one.Locks {
						declared[lock] = strings.Replace(string(texts[i]), `"mode":"deny"`, `"mode":"the-mode"`, 1)
					}
				}
				one.Policy = plain(t, p.Policy.Spec)
				one.Binding = plain(t, p.Binding.Spec)
				delete(one.Binding, "policyName")
				if j := slices.IndexFunc(chart.Policies, one.like); j >= 0 {
					chart.Policies[j].Variants = append(chart.Policies[j].Variants, one.Variants...)
				} else {
					chart.Policies = append(chart.Policies, one)
				}
			}
		}
	}
	content, err := yaml.Marshal(chart)
	harness.Must(t, err)
	golden(t, charts("pilot/files/fence.yaml"), append([]byte("# Written by `make charts` from package fence. Do not edit.\n"), content...))
}
