// Package access has the permissions of the servers of the chart, for tests. `make charts` renders them.
package access

import (
	_ "embed"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

//go:embed rendered.yaml
var rendered string

// Rules are the rules of the roles of a release.
type Rules struct {
	// Namespace are the permissions in the namespace of the server, Cluster those in all namespaces, and Ingress those in
	// the namespace of the gateway of Ingresses, if it is another one.
	Namespace, Cluster, Ingress []rbacv1.PolicyRule
	// Operator are the permissions of users that run the commands of electionctl.
	Operator []rbacv1.PolicyRule
}

// Of returns the rules of a release with the values of a trial in tools/helm. The names of more locks are added to all rules that
// name the locks of the release.
func Of(t testing.TB, trial, namespace, revision string, more ...string) Rules {
	t.Helper()
	all := map[string]Rules{}
	harness.Must(t, yaml.Unmarshal([]byte(strings.NewReplacer("the-namespace", namespace, "the-revision", revision).Replace(rendered)), &all))
	rules, ok := all[trial]
	if !ok {
		t.Fatalf("no permissions of the trial %q", trial)
	}
	for _, of := range [][]rbacv1.PolicyRule{rules.Namespace, rules.Operator} {
		for i := range of {
			if kind := of[i].Resources[0]; len(of[i].ResourceNames) > 0 && (kind == "configmaps" || kind == "leases") {
				of[i].ResourceNames = append(of[i].ResourceNames, more...)
			}
		}
	}
	return rules
}
