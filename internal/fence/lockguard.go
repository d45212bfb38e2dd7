package fence

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// lockGuard judges changes of a lock object. The record's, by what it was and what it is to be:
//
//	same        anyone: annotations, labels and data alone
//	begins      anyone: a new lock without a holder
//	renews      the holder, with the same count
//	takes       a candidate, for itself; a term that follows another's counts one more
//	releases    the holder, to nobody, with the same count
//	handsOver   the holder, to a candidate that has asked, or that the coordinator prefers
//	nominates   a coordinator, to a candidate
//
// and what could take the lock from everybody: jumps of the count, ownerReferences and
// finalizers, more notes than leave room for the record, its deletion. Each is a variable of
// the policy, by which a refusal names it.
//
// A candidate is a pod of a declared service account. A user that may delete policies may do all
// of it: operators, and the controllers that delete the objects of a namespace.
//
// That a live holder is displaced too early cannot be seen here, as CEL has no clock.
// The displaced one cannot write any more, then, so it costs a term and no safety.
//
// The policy matches by the lock's name, so that a cluster's other locks are not slowed down by
// it; what has no name is aroundLocks'. Renewals, of which there are many, are told by a condition and not by the
// validations: an API server evaluates all of those and their messages for each write that meets the conditions.
func (s single) lockGuard(set string) Pair {
	group, resource := s.Lock.resource()
	return part{
		set: set, about: []single{s}, what: "lock", mode: s.Mode, namespaces: []string{s.Namespace},
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: rules(group, nil, []string{resource}, []string{"CREATE", "UPDATE", "DELETE"}, []string{s.lock}),
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "change", Expression: "!(" + s.renewal() + ")"}},
			Variables:       s.lockVariables(),
			Validations:     s.lockRules(),
		},
	}.pair()
}

// operator is true for users that may delete policies.
const operator = "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies').check('delete').allowed()"

// Bounds of what may lie in a lock object beside its record, in bytes. An object with more than
// 256 KiB of annotations, or 1.5 MiB altogether, can be written by nobody. Candidates get more, so that
// others cannot keep a request out.
const (
	othersBulk     = 32 << 10
	candidatesBulk = 64 << 10
	// keyBulk is added to the bytes of each key: an API server notes it once for each of its managers.
	keyBulk = 16
)

// Bounds of how many field managers a lock has. By server-side apply, any number of them can own the same keys, and the
// API server's note of that lies in the object.
const (
	othersManagers     = 16
	candidatesManagers = 20
)

// jump bounds the count to which the lock of a MultiLock may follow the other's.
const jump = 1_000_000

func (s single) lockVariables() []admissionv1.Variable {
	variables := []admissionv1.Variable{podVariable()}
	variables = append(variables, recordVariables(s.Lock, "oldObject", "old")...)
	variables = append(variables, recordVariables(s.Lock, "object", "new")...)
	counts := fmt.Sprintf("variables.newTransitions == variables.oldTransitions || variables.newTransitions <= %d && "+
		"(variables.oldTransitions < 0 ? variables.newTransitions >= 0 || variables.newHolder == '' : "+
		"variables.newTransitions == variables.oldTransitions + 1 || variables.oldTransitions >= %[1]d && variables.newTransitions >= 0)", mostTransitions)
	if s.Multi {
		counts += fmt.Sprintf(" || variables.newTransitions > variables.oldTransitions && variables.newTransitions <= %d", jump)
	}
	holds, takes := s.holds(), s.isPod("variables.newHolder", "variables.pod")
	wanted := `variables.requested.contains('"identity":"' + variables.newHolder + '"')`
	nominates := "variables.coordinator && variables.newHolder != ''"
	if s.Coordinated {
		variables = append(variables, admissionv1.Variable{Name: "preferred", Expression: preferredHolder("oldObject")})
		wanted = "(" + wanted + " || variables.preferred == variables.newHolder)"
		// It also writes its strategy on a lock that nobody holds.
		nominates = "variables.coordinator && (variables.newHolder != '' || variables.oldHolder == '')"
	}
	return append(variables, []admissionv1.Variable{
		{Name: "operator", Expression: operator},
		{Name: "candidate", Expression: "variables.pod != '' && " + s.mayHold()},
		{Name: "coordinator", Expression: s.coordinates()},
		{Name: "requested", Expression: annotation("oldObject", k8sresourcelock.HandoverRequestAnnotation)},
		{Name: "same", Expression: sameRecord(s.Lock)},
		// At its end the count stays, or the lock could never be taken again.
		{Name: "counts", Expression: counts},
		{Name: "countsUp", Expression: fmt.Sprintf("variables.newTransitions > variables.oldTransitions || variables.oldTransitions >= %d", mostTransitions-1)},
		{Name: "creates", Expression: "request.operation == 'CREATE' && variables.newHolder == '' && (variables.newTransitions >= 0 || " + countless(s.Lock) + ")"},
		{Name: "renews", Expression: "variables.candidate && variables.newHolder == variables.oldHolder && " + holds},
		{Name: "acquires", Expression: "variables.candidate && " + takes + " && (variables.oldHolder == '' || variables.countsUp)"},
		{Name: "releases", Expression: "variables.candidate && variables.newHolder == '' && " + holds + " && variables.newTransitions == variables.oldTransitions"},
		{Name: "handsOver", Expression: "variables.candidate && " + holds + " && variables.newHolder != '' && " + wanted + " && variables.countsUp"},
		{Name: "nominates", Expression: nominates},
		{Name: "attempt", Expression: "variables.newHolder == '' ? (variables.oldHolder == '' ? 'creates' : 'releases') : " +
			"variables.newHolder == variables.oldHolder ? 'renews' : " + takes + " ? 'acquires' : variables.coordinator ? 'nominates' : 'handsOver'"},
		{Name: "oldBulk", Expression: bulk(s.Lock, "oldObject")},
		{Name: "newBulk", Expression: bulk(s.Lock, "object")},
		{Name: "oldManagers", Expression: managers("oldObject")},
		{Name: "newManagers", Expression: managers("object")},
	}...)
}

// holds is true for requests of the pod that the lock names.
func (s single) holds() string {
	if !s.Coordinated {
		return "variables.pod == variables.oldHolder"
	}
	return s.isPod("variables.oldHolder", "variables.pod")
}

// coordinates is true for requests of those that may write a candidate in as holder. Where no service account is declared for
// that, each candidate may: any of them can have become the coordinator.
func (s single) coordinates() string {
	declared := slices.ContainsFunc(s.Coordinators, func(user string) bool { return strings.HasPrefix(user, serviceAccountPrefix) })
	if !s.Coordinated || declared {
		return isOneOf(s.Coordinators)
	}
	return "variables.candidate || " + isOneOf(s.Coordinators)
}

// preferredHolder is whom a coordinator prefers to the holder of a Lease, "" for nobody.
func preferredHolder(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.spec) && has(%[1]s.spec.preferredHolder) ? %[1]s.spec.preferredHolder : %[2]s",
		object, annotation(object, k8sresourcelock.PreferredHolderAnnotation))
}

// sameRecord is true for an update that leaves the record alone.
func sameRecord(kind LockKind) string {
	if kind == Lease {
		return "request.operation == 'UPDATE' && has(oldObject.spec) == has(object.spec) && (!has(object.spec) || object.spec == oldObject.spec)"
	}
	return "request.operation != 'DELETE' && variables.oldRecord == variables.newRecord"
}

// countless is true for an object that carries no count of terms at all.
func countless(kind LockKind) string {
	if kind == Lease {
		return "!has(object.spec) || !has(object.spec.leaseTransitions)"
	}
	return "variables.newRecord == ''"
}

// sameField is true for a write that leaves a field of metadata as it was, which is without it
// in a new object.
func sameField(field string) string {
	return fmt.Sprintf("(oldObject != null && has(oldObject.metadata.%[1]s) ? has(object.metadata.%[1]s) && object.metadata.%[1]s == oldObject.metadata.%[1]s : !has(object.metadata.%[1]s))", field)
}

func (s single) lockRules() []admissionv1.Validation {
	reason := metav1.StatusReasonForbidden
	// Operators and the garbage collector delete. What is no deletion is judged by the rest.
	judge := func(expression, message, detail string) admissionv1.Validation {
		v := admissionv1.Validation{Expression: expression, Message: s.where() + ": " + message, Reason: &reason}
		if detail != "" {
			v.MessageExpression = quote(v.Message) + " + " + detail
		}
		return v
	}
	unless := func(clause string) string {
		return "request.operation == 'DELETE' || " + clause + " || variables.operator"
	}
	writer := "' (' + variables.attempt + ': ' + (variables.pod == '' ? request.userInfo.username + ', not bound to a pod' : 'pod ' + variables.pod)"
	all := []admissionv1.Validation{
		judge("request.operation != 'DELETE' || variables.candidate && "+s.holds()+" || variables.operator",
			"only its holder or an operator may delete it", ""),
		judge(unless("variables.same || variables.counts"), "leaderTransitions must not decrease, or increase by more than one",
			"' (counts: from ' + string(variables.oldTransitions) + ' to ' + string(variables.newTransitions) + ')'"),
		judge(unless("variables.same || variables.creates || variables.renews || variables.acquires || variables.releases || variables.handsOver || variables.nominates"),
			"only the holder may release or hand over the lock, and a candidate may acquire it only for itself",
			writer+" + ', from ' + (variables.oldHolder == '' ? 'no holder' : variables.oldHolder) + ' to ' + (variables.newHolder == '' ? 'no holder' : variables.newHolder) + ')'"),
		judge(unless(sameField("ownerReferences")+" && "+sameField("finalizers")),
			"only an operator may change ownerReferences and finalizers of a lock", ""),
		judge(unless(fmt.Sprintf("variables.candidate && !variables.same || variables.newBulk <= (variables.candidate ? %d : %d) || variables.newBulk <= variables.oldBulk", candidatesBulk, othersBulk)),
			fmt.Sprintf("annotations, labels and data that are not the record have more than %d bytes", othersBulk), "' (' + string(variables.newBulk) + ')'"),
		judge(unless(fmt.Sprintf("variables.candidate && !variables.same || variables.newManagers <= (variables.candidate ? %d : %d) || variables.newManagers <= variables.oldManagers", candidatesManagers, othersManagers)),
			fmt.Sprintf("the object has more than %d managers of its fields", othersManagers), "' (' + string(variables.newManagers) + ')'"),
	}
	if s.Lock == ConfigMap {
		all = append(all, judge(unless("variables.same || variables.creates && variables.newRecord == '' || variables.newForm && "+readableTimes("new")),
			"the record does not have the format that electors write", ""))
	}
	return all
}

// aroundLocks guards what a rule with a lock's name cannot match: deletions of collections, which have no name.
func aroundLocks(set string, locks []single) []Pair {
	var pairs []Pair
	reason := metav1.StatusReasonForbidden
	for _, group := range byPlace(locks, func(s single) bool { return !s.WithoutLockGuard }, func(s single) string { return s.Namespace + "/" + string(s.Lock) }) {
		var names []string
		for _, s := range group {
			names = append(names, s.lock)
		}
		apiGroup, resource := group[0].Lock.resource()
		pairs = append(pairs, part{
			set: set, about: group, shared: true, what: group[0].Namespace + "." + string(group[0].Lock) + ".locks", mode: mildest(group), namespaces: []string{group[0].Namespace},
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: rules(apiGroup, nil, []string{resource}, []string{"DELETE"}, nil),
				},
				MatchConditions: []admissionv1.MatchCondition{
					{Name: "collection", Expression: nameless},
					{Name: "lock", Expression: "oldObject != null && oldObject.metadata.name in " + quoteAll(names)},
				},
				Variables: []admissionv1.Variable{{Name: "operator", Expression: operator}},
				Validations: []admissionv1.Validation{{
					Expression: "variables.operator", Reason: &reason,
					Message:           fmt.Sprintf("only an operator may delete a collection with locks in namespace %s", group[0].Namespace),
					MessageExpression: quote(fmt.Sprintf("%s %s/", group[0].Lock, group[0].Namespace)) + " + oldObject.metadata.name + ': only its holder or an operator may delete it'",
				}},
			},
		}.pair())
	}
	return pairs
}

// aroundNamespaces guards the namespaces of locks against deletion, which would delete a lock before what it guards. A missing
// lock refuses everyone, so that the namespace could never be emptied.
func aroundNamespaces(set string, locks []single) []Pair {
	var pairs []Pair
	reason := metav1.StatusReasonForbidden
	guarding := func(s single) bool { return len(s.Guards) > 0 && s.refuses() }
	for _, group := range byPlace(locks, guarding, func(s single) string { return s.Namespace }) {
		namespace := group[0].Namespace
		pairs = append(pairs, part{
			set: set, about: group, shared: true, what: namespace + ".namespace",
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: rules("", nil, []string{"namespaces"}, []string{"DELETE"}, []string{namespace}),
				},
				Validations: []admissionv1.Validation{{
					Expression: "false", Reason: &reason,
					Message: fmt.Sprintf("namespace %s contains locks. Without them the API server would reject all guarded writes, also deletions. "+
						"Remove the fence first: `pilot fence remove --set %s`, or `helm uninstall` for a fence of the chart", namespace, set),
				}},
			},
		}.pair())
	}
	return pairs
}

// byPlace groups the locks that are wanted by where they lie, in order of the places.
func byPlace(locks []single, wanted func(single) bool, place func(single) string) [][]single {
	var groups [][]single
	for _, s := range locks {
		if !wanted(s) {
			continue
		}
		if i := slices.IndexFunc(groups, func(g []single) bool { return place(g[0]) == place(s) }); i >= 0 {
			groups[i] = append(groups[i], s)
		} else {
			groups = append(groups, []single{s})
		}
	}
	return groups
}

// mildest is the mode of several locks' guard: it refuses only if all do.
func mildest(locks []single) Mode {
	mild := Deny
	for _, s := range locks {
		if s.Mode == Audit || s.Mode == Warn && mild == Deny {
			mild = s.Mode
		}
	}
	return mild
}
