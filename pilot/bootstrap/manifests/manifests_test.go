package manifests

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Without locks of a kind, there is no rule for the kind: a rule without names permits all objects. From four Leases on, the
// elections share a watch, which cannot name them.
func TestRules_NameTheLocks(t *testing.T) {
	four := []string{"a", "b", "c", "d"}
	for _, c := range []struct {
		rights Rights
		shares bool
	}{{Rights{}, false}, {Rights{ConfigMaps: four}, false}, {Rights{Leases: four[:3]}, false}, {Rights{Leases: four}, true}} {
		shares := false
		for _, rule := range slices.Concat(NamespaceRules(c.rights), OperatorRules(c.rights)) {
			names := map[string][]string{"configmaps": c.rights.ConfigMaps, "leases": c.rights.Leases}[rule.Resources[0]]
			if rule.Resources[0] != "events" && len(names) == 0 {
				t.Errorf("%+v: a rule without locks: %+v", c.rights, rule)
			}
			named := len(rule.ResourceNames) > 0
			if named && !slices.Equal(rule.ResourceNames, names) {
				t.Errorf("%+v: a rule for %v", c.rights, rule.ResourceNames)
			}
			for _, verb := range []string{"get", "update", "operate"} {
				if !named && rule.Resources[0] != "events" && slices.Contains(rule.Verbs, verb) {
					t.Errorf("%+v: %s of all %v", c.rights, verb, rule.Resources)
				}
			}
			shares = shares || isSharedWatch(rule)
		}
		if shares != c.shares {
			t.Errorf("%+v: a shared watch is permitted: %v", c.rights, shares)
		}
	}
}

func isSharedWatch(rule rbacv1.PolicyRule) bool {
	return rule.Resources[0] == "leases" && slices.Equal(rule.Verbs, []string{"watch"})
}
