package fence

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/record"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Operations returns the verbs of the guard as admission operations.
func (g Guard) Operations() []string {
	if len(g.Verbs) == 0 {
		return []string{"CREATE", "DELETE", "UPDATE"}
	}
	words := sets.New[string]()
	for _, verb := range g.Verbs {
		words.Insert(strings.ToUpper(verb))
	}
	return sets.List(words)
}

// withoutStatus maps groups to kinds of Kubernetes without a status.
var withoutStatus = map[string][]string{
	"":                          {"configmaps", "secrets", "serviceaccounts", "endpoints", "events"},
	"coordination.k8s.io":       {"leases"},
	"rbac.authorization.k8s.io": {"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
}

// resources returns the declared resources once each, with other resources that write the same objects. The API server
// rejects a resource that a wildcard covers.
func (g Guard) resources() []string {
	var all []string
	for _, resource := range g.Resources {
		main, sub, _ := strings.Cut(resource, "/")
		if covered := sub != "*" && sub != "" && slices.Contains(g.Resources, main+"/*"); !covered && !slices.Contains(all, resource) {
			all = append(all, resource)
		}
	}
	// A write through /status can change annotations and finalizers.
	for _, resource := range all {
		status := resource + "/status"
		if !strings.Contains(resource, "/") && !slices.Contains(withoutStatus[g.Group], resource) && !slices.Contains(all, resource+"/*") && !slices.Contains(all, status) {
			all = append(all, status)
		}
	}
	if g.Group == "" && (slices.Contains(all, "pods/binding") || slices.Contains(all, "pods/*")) && !slices.Contains(all, "bindings") {
		all = append(all, "bindings")
	}
	return all
}

// each returns the values without duplicates, which the API server would reject.
func each(all []string) (once []string) {
	for _, one := range all {
		if !slices.Contains(once, one) {
			once = append(once, one)
		}
	}
	return once
}

// holderOnly rejects writes of the accounts unless the lock names the pod of the writer.
//
// Locks are excluded by a rule, not by a condition. If the lock is missing, the API server rejects all writes that match the
// rules before it evaluates conditions. It would also reject the creation of the lock.
//
// The holder's writes are admitted by a condition, not by the validation, because the API server evaluates validations and
// messages of each write that meets the conditions.
func (s single) holderOnly(set string, i int, locks []single) Pair {
	g := s.Guards[i]
	var exclude []admissionv1.NamedRuleWithOperations
	if slices.ContainsFunc(g.Resources, func(resource string) bool { return isLockResource(g.Group, resource) }) {
		exclude = lockRules(locks)
	}
	where, missing := s.Where(), s.Mode.missing()
	if len(g.Own) > 0 {
		*missing = admissionv1.AllowAction // lockExists rejects these writes
	}
	return part{
		set: set, about: []single{s}, what: "work", guard: &s.declared.Guards[i], mode: s.Mode, namespaces: g.Namespaces, labels: g.Labels,
		rules: rules(g.Group, g.Versions, g.resources(), g.Operations(), g.Names), exclude: exclude,
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind: paramKind(s.Lock),
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "candidate", Expression: isOneOf(s.users())},
				{Name: "follower", Expression: "!(" + s.leads("params") + ")"},
			},
			Variables: append([]admissionv1.Variable{podVariable()}, recordVariables(s.Lock, "params", "lock")...),
			Validations: []admissionv1.Validation{{
				Expression: "false",
				Message:    "only the pod that " + where + " names as holder may write this object",
				MessageExpression: "(variables.pod == '' ? 'an unbound token' : 'pod ' + variables.pod) + " +
					quote(" is not the leader: "+where+" ") + " + (variables.lockHolder == '' ? 'has no holder' : 'names ' + variables.lockHolder)",
			}},
		},
		params: &admissionv1.ParamRef{Namespace: s.Namespace, Name: s.Name, ParameterNotFoundAction: missing},
	}.pair()
}

// lockExists returns policies that reject writes of objects with the labels Own while the lock is missing. If the lock exists, they
// reject nothing. They apply to the writes of all users, because the API server looks up the lock before it evaluates the user.
func (s single) lockExists(set string) (pairs []Pair) {
	var owned []int
	for i, g := range s.Guards {
		if len(g.Own) > 0 && s.Mode == Deny {
			owned = append(owned, i)
		}
	}
	alike := func(a, b int) bool {
		g, h := s.Guards[a], s.Guards[b]
		return slices.Equal(g.Namespaces, h.Namespaces) && maps.Equal(g.OwnLabels(), h.OwnLabels())
	}
	for _, group := range grouped(owned, alike) {
		first := s.Guards[group[0]]
		p := part{
			set: set, about: []single{s}, what: "exists", mode: s.Mode, namespaces: first.Namespaces, labels: first.OwnLabels(),
			guard: &Guard{Labels: s.declared.Guards[group[0]].OwnLabels(), Namespaces: first.Namespaces},
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				ParamKind: paramKind(s.Lock), Validations: []admissionv1.Validation{{Expression: "true", Message: s.Where() + " exists"}},
			},
			params: &admissionv1.ParamRef{Namespace: s.Namespace, Name: s.Name, ParameterNotFoundAction: s.Mode.missing()},
		}
		for _, i := range group {
			g := s.Guards[i]
			p.rules = append(p.rules, rules(g.Group, g.Versions, g.resources(), g.Operations(), g.Names)...)
		}
		pairs = append(pairs, p.pair())
	}
	return pairs
}

// collections returns policies that reject deletions of collections by the accounts. Such a request has no name, so rules
// with names do not match it. Guards that select the same kinds share a policy, because each policy costs every
// request time and each API server a megabyte.
func collections(set string, locks []single) []Pair {
	alike := func(a, b guarded) bool {
		return a.s.Mode == b.s.Mode && a.Group == b.Group && slices.Equal(a.Versions, b.Versions) &&
			slices.Equal(a.resources(), b.resources()) && slices.Equal(a.Namespaces, b.Namespaces) && maps.Equal(a.Labels, b.Labels)
	}
	var named []guarded
	for _, s := range locks {
		for _, g := range s.Guards {
			if len(g.Names) > 0 && slices.Contains(g.Operations(), "DELETE") {
				named = append(named, guarded{s, g})
			}
		}
	}
	var pairs []Pair
	for _, group := range grouped(named, alike) {
		pairs = append(pairs, noCollection(set, group))
	}
	return pairs
}

// guarded is a guard with its lock.
type guarded struct {
	s single
	Guard
}

// mostNamed is the maximum number of locks in a message.
const mostNamed = 3

// noCollection returns the policy for guards that differ only in accounts and names.
func noCollection(set string, all []guarded) Pair {
	var about []single
	var wheres, users, clauses []string
	for _, one := range all {
		if !slices.ContainsFunc(about, func(s single) bool { return s.Where() == one.s.Where() }) {
			about = append(about, one.s)
			wheres = append(wheres, one.s.Where())
		}
	}
	for _, same := range grouped(all, func(a, b guarded) bool { return slices.Equal(a.s.users(), b.s.users()) }) {
		var names []string
		for _, one := range same {
			names = append(names, one.Names...)
		}
		users = append(users, same[0].s.users()...)
		clauses = append(clauses, isOneOf(same[0].s.users())+" && oldObject.metadata.name in "+quoteAll(each(names)))
	}
	message := "objects guarded by " + strings.Join(wheres[:min(len(wheres), mostNamed)], ", ")
	if more := len(wheres) - mostNamed; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	g := all[0].Guard
	return part{
		set: set, about: about, shared: true, what: "collection", mode: all[0].s.Mode, namespaces: g.Namespaces, labels: g.Labels,
		guard: &Guard{Group: g.Group, Versions: g.Versions, Resources: g.resources(), Namespaces: g.Namespaces, Labels: g.Labels},
		rules: rules(g.Group, g.Versions, g.resources(), []string{"DELETE"}, nil),
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "candidate", Expression: isOneOf(each(users))},
				{Name: "collection", Expression: nameless},
				{Name: "guarded", Expression: "oldObject == null || " + strings.Join(clauses, " || ")},
			},
			Validations: []admissionv1.Validation{{
				Expression: "false",
				Message:    message + " cannot be deleted as a collection: delete them by name",
			}},
		},
	}.pair()
}

// nameless is true for a request for a collection.
const nameless = "!has(request.name) || request.name == ''"

// lockRules returns rules that match the lock objects of all elections.
func lockRules(locks []single) []admissionv1.NamedRuleWithOperations {
	names := map[record.Kind][]string{}
	for _, s := range locks {
		names[s.Lock] = append(names[s.Lock], s.Name)
	}
	var all []admissionv1.NamedRuleWithOperations
	for _, kind := range []record.Kind{record.ConfigMap, record.Lease} {
		if len(names[kind]) > 0 {
			group, resource := kind.Resource()
			slices.Sort(names[kind])
			all = append(all, rules(group, nil, []string{resource}, []string{"*"}, slices.Compact(names[kind]))...)
		}
	}
	return all
}
