package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// pair is a policy and its binding in the chart. The templates insert the names of the release and of its content.
type pair struct {
	// Name has no digest of the content.
	Name string `json:"name"`
	// Variants are the lock types and disabled controllers of the fences that contain the policy.
	Variants []string `json:"variants"`
	// Keeps marks a permanent policy, which belongs to no release. Denies marks a policy of fences in mode deny.
	Keeps   bool           `json:"keeps,omitempty"`
	Denies  bool           `json:"denies,omitempty"`
	Locks   string         `json:"locks,omitempty"`
	Policy  map[string]any `json:"policy"`
	Binding map[string]any `json:"binding"`
}

func plain(t testing.TB, value any) (content map[string]any) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		t.Fatal(err)
	}
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

// The chart contains the policies that package fence renders.
func TestChart_Fence(t *testing.T) {
	var all []pair
	for _, lock := range []string{"configmap", "lease", "lease coordinated", "multi"} {
		for _, without := range []string{"", " without gateway deployment"} {
			kind, coordinated := strings.CutSuffix(lock, " coordinated")
			config := install.Config{
				Namespace: "the-namespace", Lock: kind, Coordinated: coordinated, Coordinators: coordinators(coordinated), ServiceAccounts: []string{"the-account"}, Others: []string{"the-others-*"},
				Revisions: []string{"the-revision"}, Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayDeployment: without != ""}),
			}
			declarations, err := config.Declarations()
			if err != nil {
				t.Fatal(err)
			}
			set, err := fence.Render("the-set", declarations...)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range set.All() {
				one := pair{
					Name: p.Name(), Variants: []string{lock + without}, Keeps: i < len(set.Permanent), Locks: p.Policy.Annotations[fence.LocksAnnotation],
					Policy: plain(t, p.Policy.Spec), Binding: plain(t, p.Binding.Spec),
				}
				delete(one.Binding, "policyName")
				if !one.Keeps {
					one.Name = one.Name[:strings.LastIndex(one.Name, "-")]
					one.Denies = strings.HasSuffix(one.Name, ".namespace")
				}
				if j := slices.IndexFunc(all, one.like); j >= 0 {
					all[j].Variants = append(all[j].Variants, one.Variants...)
				} else {
					all = append(all, one)
				}
			}
		}
	}
	content, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, charts("pilot/files/fence.yaml"), append([]byte("# Written by `make charts` from package fence. Do not edit.\n"), content...))
}
