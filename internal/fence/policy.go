package fence

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// PolicyPrefix begins the name of each policy and binding of a fence.
	PolicyPrefix = "incumbent-fence."
	// SetLabel is on each of them; its value names the set that they belong to.
	SetLabel = "incumbent.dev/fence"
	// LocksAnnotation lists the lock objects that a policy is about, as "lease namespace/name",
	// and AccountsAnnotation the service accounts that it judges, both with commas between them.
	LocksAnnotation    = "incumbent.dev/fence-locks"
	AccountsAnnotation = "incumbent.dev/fence-accounts"
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
	// Permanent ones refuse nothing: as long as they are there, the API server goes on watching the kinds of lock.
	// When the last binding with a param kind goes, its informer may stop for good, and a fence
	// that is installed later judges by what it saw last. They belong to no set and stay.
	Permanent []Pair
	// Locks guard the lock objects and their namespaces, Work what elections guard.
	Locks, Work []Pair
}

// All lists every pair, in order.
func (s Set) All() []Pair { return slices.Concat(s.Permanent, s.Locks, s.Work) }

// Render makes the policies of declarations, and sends no request. The error lists all that
// is wrong.
func Render(name string, declarations ...Declaration) (Set, error) {
	set := Set{Name: name}
	var errs []error
	// It is a part of names, in which dots separate.
	for _, problem := range validation.IsDNS1123Label(name) {
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
			set.Permanent = append(set.Permanent, permanent(kind))
		}
	}
	for _, s := range locks {
		if !s.WithoutLockGuard {
			set.Locks = append(set.Locks, s.lockGuard(name))
		}
		set.Work = append(set.Work, s.work(name, locks)...)
	}
	set.Locks = slices.Concat(set.Locks, aroundLocks(name, locks), aroundNamespaces(name, locks))
	set.Locks = append(set.Locks, memberGuards(name, locks)...)
	set.Locks = append(set.Locks, candidateGuards(name, locks)...)
	set.Work = append(set.Work, collections(name, locks)...)
	set.Locks, set.Work = unique(set.Locks), unique(set.Work)
	return set, long(set)
}

// unique leaves out what is declared twice, word for word.
func unique(pairs []Pair) []Pair {
	seen := map[string]bool{}
	return slices.DeleteFunc(pairs, func(p Pair) bool {
		again := seen[p.Name()]
		seen[p.Name()] = true
		return again
	})
}

// distinct reports locks that are declared twice.
func distinct(locks []single) (errs []error) {
	seen := map[string]bool{}
	for _, s := range locks {
		if seen[s.where()] {
			errs = append(errs, fmt.Errorf("%s is declared twice: put all of its guards into one declaration", s.where()))
		}
		seen[s.where()] = true
	}
	for _, s := range locks {
		for _, g := range s.Guards {
			errs = append(errs, g.lockNames(locks)...)
		}
	}
	return errs
}

// lockNames reports objects that a guard names as locks are: those are left out of what is guarded, by
// their names alone.
func (g Guard) lockNames(locks []single) (errs []error) {
	for _, s := range locks {
		group, resource := s.Lock.resource()
		if g.Group == group && slices.Contains(g.Names, s.lock) && slices.ContainsFunc(g.Resources, func(r string) bool { return r == resource || r == resource+"/*" }) {
			errs = append(errs, fmt.Errorf("a guard names %s %q, as the lock %s is named: locks are not guarded so, and nor is what has such a name in another namespace; give the object another name", resource, s.lock, s.where()))
		}
	}
	return errs
}

// long reports names that are too long.
func long(set Set) error {
	var errs []error
	for _, p := range set.All() {
		for _, problem := range validation.IsDNS1123Subdomain(p.Name()) {
			errs = append(errs, fmt.Errorf("%s: its policy's name %q: %s", p.Policy.Annotations[LocksAnnotation], p.Name(), problem))
		}
	}
	return errors.Join(errs...)
}

// part is a policy with its binding, before it has its name.
type part struct {
	set string
	// about are the locks that it is about.
	about []single
	// shared: it is about all locks of a place, and not about one.
	shared bool
	// what it guards, for people: a word of its name.
	what   string
	spec   admissionv1.ValidatingAdmissionPolicySpec
	params *admissionv1.ParamRef
	// namespaces and labels narrow it down further; without any, they do not.
	namespaces []string
	labels     map[string]string
	// mode "" means Deny.
	mode Mode
}

// pair gives a part its name and completes it.
//
// The name says the set and the content. So no two sets have a policy in common, and what is
// changed in a declaration becomes a policy beside the present one, which can stand until that
// does. A name that said its place in the declaration would be another guard's after an insertion.
func (p part) pair() Pair {
	if p.spec.FailurePolicy == nil {
		fail := admissionv1.Fail
		if p.mode != "" && p.mode != Deny {
			// A failure of whatever kind would refuse the write, whatever the binding's actions are.
			fail = admissionv1.Ignore
		}
		p.spec.FailurePolicy = &fail
	}
	p.complete()
	binding := admissionv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: p.params, MatchResources: p.within(), ValidationActions: p.mode.actions()}
	meta := metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/part-of": "incumbent"}}
	if p.set != "" {
		meta.Labels[SetLabel] = p.set
		meta.Annotations = p.annotations()
		meta.Name = PolicyPrefix + p.set + "." + p.lockName() + p.what + "-" + digest(p.set, p.spec, binding)
	} else {
		meta.Name = keepPrefix + p.what
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

// lockName is the lock in a policy's name. The kind is in it: a
// lock that moves from one to the other has two fences for a while.
func (p part) lockName() string {
	if p.shared {
		return ""
	}
	s := p.about[0]
	if s.Namespace == p.set { // as it is by default
		return s.lock + "." + string(s.Lock) + "."
	}
	return s.Namespace + "." + s.lock + "." + string(s.Lock) + "."
}

func (p part) annotations() map[string]string {
	var locks, accounts []string
	for _, s := range p.about {
		locks = append(locks, s.where())
		accounts = append(accounts, s.ServiceAccounts...)
	}
	slices.Sort(accounts)
	return map[string]string{LocksAnnotation: strings.Join(locks, ","), AccountsAnnotation: strings.Join(slices.Compact(accounts), ",")}
}

// actions are the API server's, for a write that is found wrong.
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

// missing says whether a missing lock has guarded writes refused.
func (m Mode) missing() *admissionv1.ParameterNotFoundActionType {
	action := admissionv1.DenyAction
	if m == Warn || m == Audit {
		action = admissionv1.AllowAction
	}
	return &action
}

// digest distinguishes contents. It is that of their JSON with all keys in order, as one gets it from what is in a
// file or in a cluster: the chart, which knows no Go types, makes the same names.
func digest(content ...any) string {
	raw, err := json.Marshal(content)
	var plain any
	if err == nil {
		err = json.Unmarshal(raw, &plain)
	}
	if err == nil {
		raw, err = json.Marshal(plain)
	}
	if err != nil {
		panic(fmt.Sprintf("a policy has no JSON form: %v", err)) // the types are Kubernetes' own
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:5])
}

// complete says what the API server would fill in, so that what is installed can be
// compared with what was rendered.
func (p part) complete() {
	match := p.spec.MatchConstraints
	policy, anywhere := admissionv1.Equivalent, admissionv1.AllScopes
	if exact(match.ResourceRules) {
		policy = admissionv1.Exact
	}
	if len(p.namespaces) > 0 {
		// A selector of namespaces matches every object that is in none.
		anywhere = admissionv1.NamespacedScope
	}
	match.MatchPolicy = &policy
	match.NamespaceSelector, match.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	for _, all := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range all {
			all[i].Scope = &anywhere
		}
	}
}

// exact is true for rules that no other group or version of a kind could go around: all versions of kinds that one group alone
// has. For others an API server looks up what is equivalent, for each policy and each request.
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

func paramKind(kind LockKind) *admissionv1.ParamKind {
	if kind == Lease {
		return &admissionv1.ParamKind{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	}
	return &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
}

// permanent matches a resource that no API server has.
func permanent(kind LockKind) Pair {
	ignore, allow := admissionv1.Ignore, admissionv1.AllowAction
	return part{
		what: string(kind),
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    &ignore,
			ParamKind:        paramKind(kind),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules("none.incumbent.dev", nil, []string{"nothing"}, []string{"CREATE"}, nil)},
			Validations:      []admissionv1.Validation{{Expression: "true"}},
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

// within are the selectors, which lie in the binding: for each request an API server parses those of every policy before
// it looks at the policy's rules, which costs more than all else about policies that a request does not concern. Those of a
// binding it parses when the policy's rules have matched, and before it looks for the param, so that a missing lock
// refuses no more than what is narrowed down. Namespaces are selected by the label that the API server keeps on each.
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

// resource is the name of the kind in requests.
func (k LockKind) resource() (group, resource string) {
	if k == Lease {
		return "coordination.k8s.io", "leases"
	}
	return "", "configmaps"
}
