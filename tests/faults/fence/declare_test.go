package fence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// nasty are values that people and programs have put where a name should be.
var nasty = []string{
	"", "ü", "日本", "A", "a b", "*", "*/*", "a/b/c", "-a", "a.b", ".", "a'b", `a\b`, "a\nb", "a\rb", "a\u202eb", "{revision}", "x-{revision}",
	strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("long.", 49) + "name", strings.Repeat("y", 300),
}

// declarer draws declarations, most of them as they should be, some with a nasty value.
type declarer struct {
	r    *rand.Rand
	home string
	// odds: one in so many values is nasty.
	odds int
}

func (d *declarer) one(all ...string) string {
	if d.r.IntN(d.odds) == 0 {
		return nasty[d.r.IntN(len(nasty))]
	}
	return all[d.r.IntN(len(all))]
}

// some are up to most of them, also one twice.
func (d *declarer) some(most int, all ...string) (some []string) {
	for range d.r.IntN(most + 1) {
		some = append(some, d.one(all...))
	}
	if len(some) == 0 && d.r.IntN(8) == 0 {
		return []string{}
	}
	return some
}

// guardable are the resources that are tried, by group, and some that are guarded and not tried.
var guardable = map[string][]string{
	"":                          {"configmaps", "secrets", "configmaps/status", "pods/eviction", "pods/*", "pods/status", "pods/exec", "nodes", "serviceaccounts/token", "bindings"},
	"apps":                      {"deployments", "deployments/scale", "deployments/*", "deployments/status"},
	"rbac.authorization.k8s.io": {"clusterroles", "roles"},
	"coordination.k8s.io":       {"leases"},
	customGroup:                 {"buoys", "buoys/status", "beacons", "beacons/*", "krakens"},
	"none.example":              {"nothing"},
}

func (d *declarer) guard() fence.Guard {
	groups := []string{"", "", "apps", "rbac.authorization.k8s.io", "coordination.k8s.io", customGroup, "none.example"}
	g := fence.Guard{Group: groups[d.r.IntN(len(groups))]}
	resources := guardable[g.Group]
	for range 1 + d.r.IntN(3) {
		g.Resources = append(g.Resources, d.one(resources...))
	}
	if d.r.IntN(d.odds) == 0 {
		g.Group = d.one(groups...)
	}
	g.Verbs = d.some(2, "create", "update", "delete", "delete", "connect")
	g.Versions = d.some(1, "*", "v1", "v1", "v2")
	if d.r.IntN(2) == 0 {
		g.Names = d.some(3, "plain", "tagged", "other")
	}
	if d.r.IntN(3) == 0 {
		g.Labels = map[string]string{d.one("app", "example.com/part"): d.one("x", "y", "x-{revision}")}
	}
	if d.r.IntN(2) == 0 {
		g.Namespaces = d.some(2, d.home, d.home+"-b")
	}
	g.Wide = d.r.IntN(3) == 0
	return g
}

// declaration is the n-th one.
func (d *declarer) declaration(n int) fence.Declaration {
	all := fence.Declaration{
		Election: d.one(fmt.Sprintf("lock-%d", n)), Namespace: d.one(d.home), Lock: fence.LockKind(d.one("configmap", "lease", "lease")), Multi: d.r.IntN(2) == 0,
		Mode: fence.Mode(d.one("", "", "deny", "deny", "warn", "audit")), Remote: d.r.IntN(30) == 0, WithoutLockGuard: d.r.IntN(4) == 0,
		Coordinators: d.some(1, "system:apiserver", "somebody else"),
	}
	for range 1 + d.r.IntN(2) {
		all.ServiceAccounts = append(all.ServiceAccounts, d.one(d.home+"/p1", d.home+"/p2", d.home+"/p-{revision}"))
	}
	if d.r.IntN(4) == 0 {
		all.Revisions = d.some(2, "r1", "r2")
	}
	for range d.r.IntN(4) {
		all.Guards = append(all.Guards, d.guard())
	}
	// Else most with revisions would have none, or a word for them without any.
	if len(all.Revisions) == 0 && d.r.IntN(6) > 0 {
		for i := range all.ServiceAccounts {
			all.ServiceAccounts[i] = strings.Replace(all.ServiceAccounts[i], "p-{revision}", "p1", 1)
		}
		for i := range all.Guards {
			for key, value := range all.Guards[i].Labels {
				all.Guards[i].Labels[key] = strings.Replace(value, "x-{revision}", "x", 1)
			}
		}
	}
	return all
}

// asked is a write as admission sees it.
type asked struct {
	verb, group, resource, namespace, name string // the resource with its subresource
	labels                                 map[string]string
}

// lockOf is a lock that is declared, with who may write what it guards.
type lockOf struct {
	name, holder string
	kind         fence.LockKind
	mode         fence.Mode
	accounts     []string
	guards       []fence.Guard
}

// locksOf says what declarations mean, in as few words as possible.
func locksOf(ds []fence.Declaration) (all []lockOf) {
	for _, d := range ds {
		revisions := d.Revisions
		if len(revisions) == 0 {
			revisions = []string{""}
		}
		for _, revision := range revisions {
			l := lockOf{name: d.Election, kind: d.Lock, mode: d.Mode}
			if revision != "" {
				l.name += "-" + revision
			}
			for _, account := range d.ServiceAccounts {
				l.accounts = append(l.accounts, strings.ReplaceAll(account, "{revision}", revision))
			}
			for _, g := range d.Guards {
				labels := map[string]string{}
				for key, value := range g.Labels {
					labels[key] = strings.ReplaceAll(value, "{revision}", revision)
				}
				g.Labels = labels
				l.guards = append(l.guards, g)
			}
			l.holder = fmt.Sprintf("leader-%d", len(all))
			all = append(all, l)
		}
	}
	return all
}

// refuses: this lock's guards refuse the write of a pod of an account.
func (l lockOf) refuses(account, pod string, a asked) bool {
	return (l.mode == "" || l.mode == fence.Deny) && slices.Contains(l.accounts, account) && pod != l.holder &&
		slices.ContainsFunc(l.guards, func(g fence.Guard) bool { return says(g, a) })
}

// says: a guard's declaration is about the write.
func says(g fence.Guard, a asked) bool {
	verbs := g.Verbs
	if len(verbs) == 0 {
		verbs = []string{"create", "update", "delete"}
	}
	for key, value := range g.Labels {
		if a.labels[key] != value {
			return false
		}
	}
	main, _, _ := strings.Cut(a.resource, "/")
	return slices.Contains(verbs, a.verb) && g.Group == a.group &&
		(slices.Contains(g.Resources, a.resource) || slices.Contains(g.Resources, main+"/*")) &&
		(len(g.Versions) == 0 || slices.Contains(g.Versions, "*") || slices.Contains(g.Versions, "v1")) &&
		(len(g.Names) == 0 || slices.Contains(g.Names, a.name)) &&
		(len(g.Namespaces) == 0 || slices.Contains(g.Namespaces, a.namespace))
}
