package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Tests run servers with the permissions of the chart, so a missing permission fails a test of the controller that needs it. The file
// also shows which permissions depend on values.
func TestChart_Access(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for name, c := range trials {
		texts[name] = accessOf(t, c.values)
	}
	content := "# Written by `make charts` from deploy/charts. Do not edit.\n"
	seen := map[string]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(trials), defaultsFirst) {
		if !seen[texts[name]] {
			content += name + ":\n" + texts[name]
		}
		seen[texts[name]] = true
	}
	golden(t, filepath.Join("..", "..", "internal", "testutil", "access", "rendered.yaml"), []byte(content))
}

// The policy for the ServiceAccounts of Gateways belongs to the controller of their Deployments.
func TestChart_AccountPolicy(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]int{"": 2, "gatewayAPI: {checkAccounts: false}": 0, "gatewayAPI: {deployment: false}": 0} {
		if got := strings.Count(trial{values: values}.withDefaults().text(t), "\n  name: incumbent-accounts.pilot-stable.istio-system\n"); got != want {
			t.Errorf("%s: %d objects, want %d", values, got, want)
		}
	}
}

func defaultsFirst(a, b string) int {
	return strings.Compare(strings.Replace(a, "defaults", " ", 1), strings.Replace(b, "defaults", " ", 1))
}

// accessOf returns the rules of the roles of a release, with a line for each rule.
func accessOf(t *testing.T, values string) string {
	t.Helper()
	text, err := runHelm(t, "the-namespace", "", append([]string{"template", "the-revision", charts("pilot"), kubeVersion, "--show-only=templates/access.yaml"}, valueFiles(t, always, "name: pilot", values, "revision: the-revision")...)...)
	harness.Must(t, err)
	rules := map[string]string{}
	for _, o := range parse(t, text) {
		role := map[string]string{"Role": "namespace", "ClusterRole": "cluster"}[o.GetKind()]
		if strings.HasSuffix(o.GetName(), "-operator") {
			role = "operator"
		} else if strings.Contains(o.GetName(), "-operator.") {
			role = "clusterOperator"
		} else if o.GetNamespace() != "" && o.GetNamespace() != "the-namespace" {
			role = "ingress"
		}
		all, _, err := unstructured.NestedSlice(o.Object, "rules")
		if role == "" || err != nil {
			continue
		}
		for _, rule := range all {
			line, err := json.Marshal(rule)
			harness.Must(t, err)
			rules[role] += fmt.Sprintf("  - %s\n", line)
		}
	}
	var lines strings.Builder
	for _, role := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(&lines, "  %s:\n%s", role, rules[role])
	}
	return lines.String()
}
