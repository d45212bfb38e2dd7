package fence

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// PolicyPrefix begins the name of each policy and binding of a fence.
	PolicyPrefix = "incumbent-fence."
	// SetLabel is on each of them; its value names the set that they belong to.
	SetLabel = "incumbent.dev/fence"
	// keepPrefix begins the names of those that keep the API server's informers alive.
	keepPrefix = "incumbent-fence-keep."
)

// Pair is a policy with its only binding, which has the same name. A policy without a
// binding has no effect, and a binding without a policy neither.
type Pair struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Name is that of both.
func (p Pair) Name() string { return p.Policy.Name }

// Set is all that makes a fence, in the order in which to install it.
type Set struct {
	// Name is the SetLabel's value.
	Name string
	// Keep have no effect but that the API server goes on watching the kinds of lock.
	// When the last binding with a param kind goes, its informer may stop for good, and a fence
	// that is installed later judges by what it saw last. They belong to no set and stay.
	Keep []Pair
	// Locks guard the lock objects, Work what elections guard.
	Locks, Work []Pair
}

// All lists every pair, in order.
func (s Set) All() []Pair { return slices.Concat(s.Keep, s.Locks, s.Work) }

// Render makes the policies of declarations. It asks nobody. The error lists all that
// is wrong.
func Render(name string, declarations ...Declaration) (Set, error) {
	set := Set{Name: name}
	var errs []error
	for _, problem := range validation.IsValidLabelValue(name) {
		errs = append(errs, fmt.Errorf("the set's name %q: %s", name, problem))
	}
	if len(declarations) == 0 {
		errs = append(errs, errors.New("no declarations: say which elections guard what"))
	}
	var locks []single
	for _, d := range declarations {
		if err := d.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		locks = append(locks, d.split()...)
	}
	if err := errors.Join(append(errs, distinct(locks)...)...); err != nil {
		return Set{}, err
	}
	for _, kind := range []LockKind{ConfigMap, Lease} {
		if slices.ContainsFunc(locks, func(s single) bool { return s.Lock == kind }) {
			set.Keep = append(set.Keep, keeper(kind))
		}
	}
	for _, s := range locks {
		if !s.WithoutLockGuard {
			set.Locks = append(set.Locks, s.lockGuard(name))
		}
		set.Work = append(set.Work, s.work(name, locks)...)
	}
	return set, nil
}

// distinct reports locks that are declared twice, and names that are too long.
func distinct(locks []single) (errs []error) {
	seen := map[string]bool{}
	for _, s := range locks {
		name := s.name("collection")
		if seen[name] {
			errs = append(errs, fmt.Errorf("%s %s/%s is declared twice: put all of its guards into one declaration", s.Lock, s.Namespace, s.lock))
		}
		seen[name] = true
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, fmt.Errorf("%s %s/%s: its policy's name %q: %s", s.Lock, s.Namespace, s.lock, name, problem))
		}
	}
	return errs
}

// name is the kind's, too: a lock that moves from one to the other has two fences for a
// while, and none of them changes what it watches.
func (s single) name(part string) string {
	return PolicyPrefix + s.Namespace + "." + s.lock + "." + string(s.Lock) + "." + part
}

// pair puts a policy and its binding together. Both refuse by default.
func pair(name, set string, spec admissionv1.ValidatingAdmissionPolicySpec, params *admissionv1.ParamRef) Pair {
	fail := admissionv1.Fail
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = &fail
	}
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "incumbent"}}
	if set != "" {
		meta.Labels[SetLabel] = set
	}
	version := admissionv1.SchemeGroupVersion.String()
	bound := *meta.DeepCopy()
	complete(spec.MatchConstraints)
	return Pair{
		Policy: &admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: meta, Spec: spec,
		},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: bound,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ParamRef: params,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// complete says what the API server would fill in, so that what is installed can be
// compared with what was rendered.
func complete(match *admissionv1.MatchResources) {
	equivalent, anywhere := admissionv1.Equivalent, admissionv1.AllScopes
	match.MatchPolicy = &equivalent
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, all := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range all {
			all[i].Scope = &anywhere
		}
	}
}

func paramKind(kind LockKind) *admissionv1.ParamKind {
	if kind == Lease {
		return &admissionv1.ParamKind{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	}
	return &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
}

// keeper matches a resource that no API server has.
func keeper(kind LockKind) Pair {
	ignore, allow := admissionv1.Ignore, admissionv1.AllowAction
	return pair(keepPrefix+string(kind), "", admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &ignore,
		ParamKind:        paramKind(kind),
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules("none.incumbent.dev", nil, []string{"nothing"}, []string{"CREATE"}, nil)},
		Validations:      []admissionv1.Validation{{Expression: "true"}},
	}, &admissionv1.ParamRef{Namespace: "kube-system", Name: "incumbent-fence-keep", ParameterNotFoundAction: &allow})
}

func rules(group string, versions, resources, verbs, names []string) []admissionv1.NamedRuleWithOperations {
	if len(versions) == 0 {
		versions = []string{"*"}
	}
	var types []admissionv1.OperationType
	for _, verb := range verbs {
		types = append(types, admissionv1.OperationType(verb))
	}
	return []admissionv1.NamedRuleWithOperations{{
		ResourceNames: names,
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: types,
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: versions, Resources: resources},
		},
	}}
}

// inNamespaces selects namespaces by the label that the API server keeps on each.
func inNamespaces(names []string) *metav1.LabelSelector {
	if len(names) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: names,
	}}}
}

// work makes the policies for what an election guards: one for each Guard, as what
// narrows one down says nothing of the next.
func (s single) work(set string, locks []single) []Pair {
	var pairs []Pair
	for i, g := range s.Guards {
		part := fmt.Sprintf("work-%d", i+1)
		pairs = append(pairs, s.holderOnly(set, part, g, locks))
		if len(g.Names) > 0 && slices.Contains(g.operations(), "DELETE") {
			pairs = append(pairs, s.noCollection(set, part+"-collection", g))
		}
	}
	return pairs
}

func (g Guard) operations() []string {
	verbs := g.Verbs
	if len(verbs) == 0 {
		verbs = []string{"create", "update", "delete"}
	}
	words := map[string]bool{}
	for _, verb := range verbs {
		words[operations[verb]] = true
	}
	return slices.Sorted(maps.Keys(words))
}

// holderOnly refuses the accounts' writes unless the lock names the pod that writes.
//
// Locks are left out by a rule and not by a condition: a missing lock refuses whatever the
// rules match before any condition is looked at, and the first to be refused would be
// whoever makes the lock anew.
func (s single) holderOnly(set, part string, g Guard, locks []single) Pair {
	deny := admissionv1.DenyAction
	match := &admissionv1.MatchResources{
		ResourceRules:        rules(g.Group, g.Versions, g.Resources, g.operations(), g.Names),
		ExcludeResourceRules: lockRules(locks),
		NamespaceSelector:    inNamespaces(g.Namespaces),
	}
	if len(g.Labels) > 0 {
		match.ObjectSelector = &metav1.LabelSelector{MatchLabels: g.Labels}
	}
	reason := metav1.StatusReasonForbidden
	where := fmt.Sprintf("%s %s/%s", s.Lock, s.Namespace, s.lock)
	return pair(s.name(part), set, admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind:        paramKind(s.Lock),
		MatchConstraints: match,
		MatchConditions:  []admissionv1.MatchCondition{{Name: "candidate", Expression: isOneOf(s.users())}},
		Variables:        append([]admissionv1.Variable{podVariable()}, recordVariables(s.Lock, "params", "lock")...),
		Validations: []admissionv1.Validation{{
			Expression: holds(s.Lock),
			Reason:     &reason,
			Message:    "only the pod that " + where + " names as its holder may write this",
			MessageExpression: "(variables.pod == '' ? 'a token that is bound to no pod' : 'pod ' + variables.pod) + " +
				quote(" is not the leader: "+where+" ") + " + (variables.lockHolder == '' ? 'names nobody' : 'names ' + variables.lockHolder)",
		}},
	}, &admissionv1.ParamRef{Namespace: s.Namespace, Name: s.lock, ParameterNotFoundAction: &deny})
}

// noCollection refuses the accounts to delete whole collections: such a request has no
// name, and so no rule with names matches it.
func (s single) noCollection(set, part string, g Guard) Pair {
	reason := metav1.StatusReasonForbidden
	return pair(s.name(part), set, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules:     rules(g.Group, g.Versions, g.Resources, []string{"DELETE"}, nil),
			NamespaceSelector: inNamespaces(g.Namespaces),
		},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "candidate", Expression: isOneOf(s.users())},
			{Name: "collection", Expression: "!has(request.name) || request.name == ''"},
			{Name: "guarded", Expression: "oldObject == null || oldObject.metadata.name in " + quoteAll(g.Names)},
		},
		Validations: []admissionv1.Validation{{
			Expression: "false", Reason: &reason,
			Message: fmt.Sprintf("what %s %s/%s guards is deleted by name", s.Lock, s.Namespace, s.lock),
		}},
	}, nil)
}

// lockRules match the lock objects of all elections.
func lockRules(locks []single) []admissionv1.NamedRuleWithOperations {
	names := map[LockKind][]string{}
	for _, s := range locks {
		names[s.Lock] = append(names[s.Lock], s.lock)
	}
	var all []admissionv1.NamedRuleWithOperations
	for _, kind := range []LockKind{ConfigMap, Lease} {
		if len(names[kind]) > 0 {
			group, resource := kind.resource()
			all = append(all, rules(group, nil, []string{resource}, []string{"*"}, names[kind])...)
		}
	}
	return all
}

// resource is what locks of the kind are called in requests.
func (k LockKind) resource() (group, resource string) {
	if k == Lease {
		return "coordination.k8s.io", "leases"
	}
	return "", "configmaps"
}
