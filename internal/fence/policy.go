package fence

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/record"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// PolicyPrefix is the prefix of the names of policies and bindings.
	PolicyPrefix = "incumbent-fence."
	// SetLabel is a label with the name of the set.
	SetLabel = "incumbent.dev/fence"
	// KeepPrefix is the prefix of the permanent policies, which keep informers of the API server running.
	KeepPrefix = "incumbent-fence-keep."
)

// Pair is a policy with its binding of the same name. Neither has an effect without the other.
type Pair struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Name returns the name of both.
func (p Pair) Name() string { return p.Policy.Name }

// Set contains the policies of a fence in the order of installation.
type Set struct {
	// Name is the value of SetLabel.
	Name string
	// Permanent policies reject nothing. They keep the API server's watch of the lock kinds running. If the last binding
	// with a parameter kind is deleted, its informer can stop permanently, and policies that are installed later use old
	// locks. Permanent policies are never removed. Each set has its own, so that no two tools own one object.
	Permanent []Pair
	// Locks guard the lock objects and their namespaces. Work contains the policies of the guards.
	Locks, Work []Pair
}

// All returns all pairs in order.
func (s Set) All() []Pair { return slices.Concat(s.Permanent, s.Locks, s.Work) }

// Render returns the policies of declarations. It sends no requests. The error lists all problems.
func Render(name string, declarations ...Declaration) (Set, error) {
	set := Set{Name: name}
	var errs []error
	// Names of policies use dots as separators.
	for _, problem := range validation.IsDNS1123Label(name) {
		errs = append(errs, fmt.Errorf("set name %q: %s", name, problem))
	}
	if len(declarations) == 0 {
		errs = append(errs, errors.New("no declarations: declare at least one election"))
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
	slices.SortFunc(locks, func(a, b single) int { return strings.Compare(a.Where(), b.Where()) }) // stored declarations have no order
	for _, kind := range []record.Kind{record.ConfigMap, record.Lease} {
		if slices.ContainsFunc(locks, func(s single) bool { return s.Lock == kind }) {
			set.Permanent = append(set.Permanent, permanent(name, kind))
		}
	}
	for _, s := range locks {
		if !s.WithoutLockGuard {
			set.Locks = append(set.Locks, s.lockGuard(name))
		}
		for i := range s.Guards { // one policy each, because guards select different objects
			set.Work = append(set.Work, s.holderOnly(name, i, locks))
		}
		set.Work = append(set.Work, s.lockExists(name)...)
	}
	set.Locks = unique(slices.Concat(set.Locks, aroundLocks(name, locks), aroundNamespaces(name, locks), memberGuards(name, locks), candidateGuards(name, locks)))
	set.Work = unique(slices.Concat(set.Work, collections(name, locks)))
	return set, long(set)
}

// unique removes duplicates.
func unique(pairs []Pair) []Pair {
	seen := map[string]bool{}
	return slices.DeleteFunc(pairs, func(p Pair) bool {
		again := seen[p.Name()]
		seen[p.Name()] = true
		return again
	})
}

// distinct returns errors for locks that are declared twice.
func distinct(locks []single) (errs []error) {
	seen := map[string]bool{}
	for _, s := range locks {
		if seen[s.Where()] {
			errs = append(errs, fmt.Errorf("%s is declared twice: combine its guards in one declaration", s.Where()))
		}
		seen[s.Where()] = true
	}
	for _, s := range locks {
		for _, g := range s.Guards {
			errs = append(errs, g.lockNames(locks)...)
		}
	}
	return errs
}

// lockNames returns errors for guarded objects with the name of a lock. Locks are excluded from guards by name only.
func (g Guard) lockNames(locks []single) (errs []error) {
	for _, s := range locks {
		group, resource := s.Lock.Resource()
		if g.Group == group && slices.Contains(g.Names, s.Name) && slices.ContainsFunc(g.Resources, func(r string) bool { return r == resource || r == resource+"/*" }) {
			errs = append(errs, fmt.Errorf("a guard selects %s %q, which is also the name of lock %s. Guards exclude objects with the name of a lock: rename the object", resource, s.Name, s.Where()))
		}
	}
	return errs
}

// long returns errors for names that are too long.
func long(set Set) error {
	var errs []error
	for _, p := range set.All() {
		for _, problem := range validation.IsDNS1123Subdomain(p.Name()) {
			errs = append(errs, fmt.Errorf("policy name %q: %s", p.Name(), problem))
		}
	}
	return errors.Join(errs...)
}

// part is a policy and its binding before they have a name.
type part struct {
	set string
	// about are the locks of the policy.
	about []single
	// shared is true if the policy concerns several locks.
	shared bool
	// what is the part of the name that describes the policy. guard is the declared guard, if any, as far as it is part of the name.
	what  string
	guard *Guard
	// rules select the writes, except the writes of exclude.
	rules, exclude []admissionv1.NamedRuleWithOperations
	spec           admissionv1.ValidatingAdmissionPolicySpec
	params         *admissionv1.ParamRef
	// namespaces and labels select objects further. Empty means all.
	namespaces []string
	labels     map[string]string
	// mode is Deny if empty.
	mode Mode
}

// pair names and completes a part.
//
// A name contains the set, the lock or the namespace, the mode, and a digest of the guard and of the form of rules and binding. So the
// name determines everything that the policy and its binding must have in common, and the objects that they select. If these change,
// the result is another policy, and the old one stays in effect until the new one is. Sets never share policies. The expressions are
// not part of the name: they can be replaced in one write of one object, which is never in effect in part. A name by position would
// change its meaning after an insertion.
//
// The digest contains no name of a lock, namespace, revision or account. So a chart can contain names with placeholders.
func (p part) pair() Pair {
	p.mode = cmp.Or(p.mode, Deny)
	if p.spec.FailurePolicy == nil {
		fail := admissionv1.Fail
		if p.mode != Deny {
			// With Fail, an evaluation error would reject the write in every mode.
			fail = admissionv1.Ignore
		}
		p.spec.FailurePolicy = &fail
	}
	p.spec.MatchConstraints = p.constraints()
	binding := admissionv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: p.params, MatchResources: p.within(), ValidationActions: p.mode.actions()}
	meta := metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/part-of": "incumbent"}}
	if p.set != "" {
		reason := metav1.StatusReasonForbidden
		for i := range p.spec.Validations {
			p.spec.Validations[i].Reason = &reason
		}
		meta.Labels[SetLabel] = p.set
		if len(p.about) > 0 {
			meta.Annotations = map[string]string{DeclarationsAnnotation: stored(p.about)}
		}
		meta.Name = PolicyPrefix + p.set + "." + p.lockName() + p.what + "." + string(p.mode) + "-" + p.digest(binding)
	} else {
		meta.Name = KeepPrefix + p.what
	}
	binding.PolicyName = meta.Name
	version := admissionv1.SchemeGroupVersion.String()
	return Pair{
		Policy: &admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: meta, Spec: p.spec,
		},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: *meta.DeepCopy(), Spec: binding,
		},
	}
}

// lockName returns the lock for the policy name. It contains the kind, because a lock that migrates has two fences for a
// while.
func (p part) lockName() string {
	if p.shared {
		return ""
	}
	s := p.about[0]
	if s.Namespace == p.set { // as it is by default
		return s.Name + "." + string(s.Lock) + "."
	}
	return s.Namespace + "." + s.Name + "." + string(s.Lock) + "."
}

// actions returns the validation actions for violations.
func (m Mode) actions() []admissionv1.ValidationAction {
	switch m {
	case Audit:
		return []admissionv1.ValidationAction{admissionv1.Audit}
	case Warn:
		return []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
	case Deny:
	}
	return []admissionv1.ValidationAction{admissionv1.Deny}
}

// missing returns whether a missing lock rejects guarded writes.
func (m Mode) missing() *admissionv1.ParameterNotFoundActionType {
	action := admissionv1.DenyAction
	if m == Warn || m == Audit {
		action = admissionv1.AllowAction
	}
	return &action
}

// digest returns a digest of the guard and of the form of the policy and its binding.
func (p part) digest(binding admissionv1.ValidatingAdmissionPolicyBindingSpec) string {
	rules := slices.Clone(p.rules)
	for i := range rules {
		rules[i].ResourceNames = nil
	}
	form := binding.DeepCopy()
	form.ValidationActions = nil
	if form.ParamRef != nil {
		form.ParamRef = &admissionv1.ParamRef{}
	}
	if within := form.MatchResources; within != nil {
		within.ObjectSelector.MatchLabels = nil
		for i := range within.NamespaceSelector.MatchExpressions {
			within.NamespaceSelector.MatchExpressions[i].Values = nil
		}
	}
	raw, err := json.Marshal([]any{p.guard, rules, p.spec.MatchConstraints.MatchPolicy, p.spec.ParamKind, form})
	if err != nil {
		panic(fmt.Sprintf("a policy has no JSON form: %v", err)) // these types always have one
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:5])
}

// constraints returns the rules with the defaults of the API server, so that installed and rendered objects are comparable.
func (p part) constraints() *admissionv1.MatchResources {
	policy, anywhere := admissionv1.Equivalent, admissionv1.AllScopes
	if exact(p.rules) {
		policy = admissionv1.Exact
	}
	if len(p.namespaces) > 0 {
		// A namespace selector matches all cluster-scoped objects.
		anywhere = admissionv1.NamespacedScope
	}
	for _, all := range [][]admissionv1.NamedRuleWithOperations{p.rules, p.exclude} {
		for i := range all {
			all[i].Scope = &anywhere
		}
	}
	return &admissionv1.MatchResources{
		ResourceRules: p.rules, ExcludeResourceRules: p.exclude, MatchPolicy: &policy,
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
	}
}

// exact reports whether MatchPolicy Exact suffices: all versions of kinds that exist in one group only. Otherwise the API
// server resolves equivalent kinds for each policy and request.
func exact(rules []admissionv1.NamedRuleWithOperations) bool {
	groups := map[string]string{"configmaps": "", "leases": "coordination.k8s.io", "namespaces": ""}
	return !slices.ContainsFunc(rules, func(r admissionv1.NamedRuleWithOperations) bool {
		return !slices.Equal(r.APIVersions, []string{"*"}) || slices.ContainsFunc(r.Resources, func(resource string) bool {
			main, _, _ := strings.Cut(resource, "/")
			group, known := groups[main]
			return !known || !slices.Equal(r.APIGroups, []string{group})
		})
	})
}

func paramKind(kind record.Kind) *admissionv1.ParamKind {
	version, name := kind.Object()
	return &admissionv1.ParamKind{APIVersion: version, Kind: name}
}

// permanent returns a policy that matches a resource that does not exist.
func permanent(set string, kind record.Kind) Pair {
	ignore, allow := admissionv1.Ignore, admissionv1.AllowAction
	return part{
		what:  set + "." + string(kind),
		rules: rules("none.incumbent.dev", nil, []string{"nothing"}, []string{"CREATE"}, nil),
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &ignore,
			ParamKind:     paramKind(kind),
			Validations:   []admissionv1.Validation{{Expression: "true"}},
		},
		params: &admissionv1.ParamRef{Namespace: "kube-system", Name: "incumbent-fence-keep", ParameterNotFoundAction: &allow},
	}.pair()
}

func rules(group string, versions, resources, verbs, names []string) []admissionv1.NamedRuleWithOperations {
	if len(versions) == 0 || slices.Contains(versions, "*") {
		versions = []string{"*"}
	}
	var types []admissionv1.OperationType
	for _, verb := range verbs {
		types = append(types, admissionv1.OperationType(verb))
	}
	return []admissionv1.NamedRuleWithOperations{{
		ResourceNames: each(names),
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: types,
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: each(versions), Resources: resources},
		},
	}}
}

// within returns the selectors of the binding. The API server parses selectors of every policy for each request, which is
// expensive. It parses the expressions of a binding only after the rules of the policy matched. It does so before it looks up the
// parameter, so a missing lock rejects only selected objects. Namespaces are selected by their automatic label.
func (p part) within() *admissionv1.MatchResources {
	if len(p.namespaces)+len(p.labels) == 0 {
		return nil
	}
	equivalent := admissionv1.Equivalent
	match := &admissionv1.MatchResources{
		MatchPolicy:       &equivalent,
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: p.labels},
	}
	if len(p.namespaces) > 0 {
		match.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: p.namespaces,
		}}
	}
	return match
}
