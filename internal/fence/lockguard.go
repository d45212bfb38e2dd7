package fence

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// lockGuard returns the policy that checks changes of a lock object. It allows these changes of the record:
//
//	same       any account: labels, data and annotations of others only
//	creates    any account: a new lock without a holder
//	renews     the holder, with the same number of transitions
//	acquires   a candidate, for itself; after the term of another candidate with one transition more
//	releases   the holder, with an empty holder and the same number of transitions
//	handsOver  the holder, to a candidate that requested it or that the coordinator prefers
//	nominates  a coordinator, to a candidate
//
// It also rejects changes that could prevent every candidate from acquiring the lock: jumps of the transitions, ownerReferences and
// finalizers, annotations that leave no space for the record, and deletion. Each of them is a variable of the policy, and a rejection
// contains its name.
//
// Annotations of incumbent are commands to the electors, and one annotation of a Lease has the key of the holder. Candidates and
// coordinators may change them, and users with the verb operate on the lock object.
//
// A candidate is a pod of a declared service account. Users that may delete policies may make every change. These are administrators and
// the controllers that delete the objects of a namespace.
//
// The policy cannot reject a candidate that preempts a live holder too early, because CEL has no clock. The old holder cannot write
// after that, so this costs a term but not safety.
//
// The policy selects the lock by name, so it does not slow down other locks. aroundLocks checks requests without a name. Renewals are
// frequent. A match condition excludes them, because an API server evaluates all validations and messages for each matching write.
func (s single) lockGuard(set string) Pair {
	group, resource := s.Lock.Resource()
	return part{
		set: set, about: []single{s}, what: "lock", mode: s.Mode, namespaces: []string{s.Namespace},
		rules: rules(group, nil, []string{resource}, []string{"CREATE", "UPDATE", "DELETE"}, []string{s.Name}),
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConditions: []admissionv1.MatchCondition{{Name: "change", Expression: "!(" + s.renewal() + ")"}},
			Variables:       append(s.lockVariables(), s.sizeVariables()...),
			Validations:     s.lockRules(),
		},
	}.pair()
}

// OperateVerb is the RBAC verb on a lock object that permits the commands of an operator (package admin).
const OperateVerb = "operate"

// mayOperate is true for users with the verb operate on the lock object.
func (s single) mayOperate() string {
	group, resource := s.Lock.Resource()
	return fmt.Sprintf("authorizer.group(%s).resource(%s).namespace(%s).name(%s).check(%s).allowed()",
		quote(group), quote(resource), quote(s.Namespace), quote(s.Name), quote(OperateVerb))
}

// operator is true for users that may delete policies.
const operator = "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies').check('delete').allowed()"

// Limits of the data in a lock object without its record, in bytes. The API server rejects every write of an object with more than
// 256 KiB of annotations or 1.5 MiB in total. Each limit leaves space for more important writes: requests of candidates, and changes of
// the record.
const (
	othersBulk     = 32 << 10
	candidatesBulk = 48 << 10
	recordBulk     = 64 << 10
	// If a lock is larger, because it was written before the fence was installed, a change of the record may add recordGrowth
	// for the marker, up to a total of largestBulk.
	recordGrowth = 1 << 10
	largestBulk  = 192 << 10
	// keyBulk is added for each key, because managedFields contains the key once per manager.
	keyBulk = 16
)

// Limits of the number of field managers of a lock. With server-side apply, many managers can own the same keys, and managedFields is
// part of the object.
const (
	othersManagers     = 16
	candidatesManagers = 20
	// managedBulk limits the characters in managedFields. Any account may write it directly, also with fields that do not exist. If it is
	// larger, a change of the record may add managedGrowth for its manager.
	managedBulk   = 128 << 10
	managedGrowth = 4 << 10
)

func (s single) lockVariables() []admissionv1.Variable {
	variables := []admissionv1.Variable{podVariable()}
	variables = append(variables, recordVariables(s.Lock, "oldObject", "old")...)
	variables = append(variables, recordVariables(s.Lock, "object", "new")...)
	counts := fmt.Sprintf("variables.newTransitions == variables.oldTransitions || variables.newTransitions <= %d && "+
		"(variables.oldTransitions < 0 ? variables.newTransitions >= 0 || variables.newHolder == '' : "+
		"variables.newTransitions == variables.oldTransitions + 1 || variables.oldTransitions >= %[1]d && variables.newTransitions >= 0)", mostTransitions)
	holds, takes := s.holds(), s.isPod("variables.newHolder", "variables.pod")
	wanted := `variables.requested.contains('"identity":"' + variables.newHolder + '"')`
	nominates := "variables.coordinator && variables.newHolder != ''"
	if s.Coordinated {
		variables = append(variables, admissionv1.Variable{Name: "preferred", Expression: preferredHolder("oldObject")})
		wanted = "(" + wanted + " || variables.preferred == variables.newHolder)"
		// It also writes its strategy to a lock without a holder.
		nominates = "variables.coordinator && (variables.newHolder != '' || variables.oldHolder == '')"
	}
	return append(variables, []admissionv1.Variable{
		{Name: "operator", Expression: operator},
		{Name: "candidate", Expression: "variables.pod != '' && " + s.mayHold()},
		{Name: "coordinator", Expression: s.coordinates()},
		{Name: "requested", Expression: annotation("oldObject", record.HandoverRequestAnnotation)},
		{Name: "same", Expression: sameRecord(s.Lock)},
		{Name: "operates", Expression: s.mayOperate()},
		{Name: "sameCommands", Expression: sameCommands},
		// At the maximum the transitions do not change. Otherwise no candidate could acquire the lock.
		{Name: "counts", Expression: counts},
		{Name: "countsUp", Expression: fmt.Sprintf("variables.newTransitions > variables.oldTransitions || variables.oldTransitions >= %d", mostTransitions-1)},
		{Name: "creates", Expression: "request.operation == 'CREATE' && variables.newHolder == '' && (variables.newTransitions in [0, 1] || " + countless(s.Lock) + ")"},
		{Name: "renews", Expression: "variables.candidate && variables.newHolder == variables.oldHolder && " + holds},
		{Name: "acquires", Expression: "variables.candidate && " + takes + " && (variables.oldHolder == '' || variables.countsUp)"},
		{Name: "releases", Expression: "variables.candidate && variables.newHolder == '' && " + holds + " && variables.newTransitions == variables.oldTransitions"},
		{Name: "handsOver", Expression: "variables.candidate && " + holds + " && variables.newHolder != '' && " + wanted + " && variables.countsUp"},
		{Name: "nominates", Expression: nominates},
		{Name: "attempt", Expression: "variables.newHolder == '' ? (variables.oldHolder == '' ? 'creates' : 'releases') : " +
			"variables.newHolder == variables.oldHolder ? 'renews' : " + takes + " ? 'acquires' : variables.coordinator ? 'nominates' : 'handsOver'"},
	}...)
}

// sizeVariables are the variables of the rules that limit the size of the object.
func (s single) sizeVariables() []admissionv1.Variable {
	return []admissionv1.Variable{
		{Name: "oldBulk", Expression: bulk(s.Lock, "oldObject")},
		{Name: "newBulk", Expression: bulk(s.Lock, "object")},
		{Name: "limit", Expression: fmt.Sprintf("!(variables.candidate || variables.coordinator) ? %d : variables.same ? %d : %d", othersBulk, candidatesBulk, recordBulk)},
		{Name: "growth", Expression: fmt.Sprintf("variables.same || variables.newBulk > %d ? 0 : %d", largestBulk, recordGrowth)},
		{Name: "oldManagers", Expression: managers("oldObject")},
		{Name: "newManagers", Expression: managers("object")},
		{Name: "oldManaged", Expression: managed("oldObject")},
		{Name: "newManaged", Expression: managed("object")},
	}
}

// holds is true for requests of the holder.
func (s single) holds() string {
	if !s.Coordinated {
		return "variables.pod == variables.oldHolder"
	}
	return s.isPod("variables.oldHolder", "variables.pod")
}

// coordinates is true for requests of accounts that may write a candidate as holder. If no service account is declared for that, each
// candidate may do it, because each can become the coordinator.
func (s single) coordinates() string {
	declared := slices.ContainsFunc(s.Coordinators, func(user string) bool { return strings.HasPrefix(user, serviceAccountPrefix) })
	if !s.Coordinated || declared {
		return isOneOf(s.Coordinators)
	}
	return "variables.candidate || " + isOneOf(s.Coordinators)
}

// preferredHolder is the candidate that the coordinator prefers to the holder of a Lease, or "".
func preferredHolder(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.spec) && has(%[1]s.spec.preferredHolder) ? %[1]s.spec.preferredHolder : %[2]s",
		object, annotation(object, record.PreferredHolderAnnotation))
}

// sameCommands is true for a write that changes no annotation of incumbent, and not the key of a Lease. The key is part of the record: with
// an invalid key the record is unreadable, which ends the term of the leader.
var sameCommands = func() string {
	const have = "%[1]s != null && has(%[1]s.metadata.annotations)"
	// keeps is true if each of these annotations of one object is in the other object, with the same value.
	keeps := func(object, other string) string {
		return fmt.Sprintf("(!("+have+") || %[1]s.metadata.annotations.all(k, !k.startsWith(%[3]s) && k != %[4]s || "+
			"%[2]s != null && has(%[2]s.metadata.annotations) && k in %[2]s.metadata.annotations && %[1]s.metadata.annotations[k] == %[2]s.metadata.annotations[k]))",
			object, other, quote(record.Prefix), quote(k8sresourcelock.LeaseHolderKey))
	}
	return keeps("object", "oldObject") + " && " + keeps("oldObject", "object")
}()

// sameRecord is true for an update that does not change the record.
func sameRecord(kind record.Kind) string {
	if kind == record.Lease {
		return "request.operation == 'UPDATE' && has(oldObject.spec) == has(object.spec) && (!has(object.spec) || object.spec == oldObject.spec)"
	}
	return "request.operation != 'DELETE' && variables.oldRecord == variables.newRecord"
}

// countless is true for an object without transitions.
func countless(kind record.Kind) string {
	if kind == record.Lease {
		return "!has(object.spec) || !has(object.spec.leaseTransitions)"
	}
	return "variables.newRecord == ''"
}

// sameField is true for a write that does not change a field, or creates an object without it.
func sameField(field string) string {
	return fmt.Sprintf("(oldObject != null && has(oldObject.%[1]s) ? has(object.%[1]s) && object.%[1]s == oldObject.%[1]s : !has(object.%[1]s))", field)
}

func (s single) lockRules() []admissionv1.Validation {
	// Operators and the garbage collector may delete. The other rules check writes that are not deletions.
	judge := func(expression, message, detail string) admissionv1.Validation {
		v := admissionv1.Validation{Expression: expression, Message: s.Where() + ": " + message}
		if detail != "" {
			v.MessageExpression = quote(v.Message) + " + " + detail
		}
		return v
	}
	unless := func(clause string) string {
		return "request.operation == 'DELETE' || " + clause + " || variables.operator"
	}
	writer := "' (' + variables.attempt + ': ' + " + sender
	all := []admissionv1.Validation{
		judge("request.operation != 'DELETE' || variables.candidate && "+s.holds()+" || variables.operator",
			"only its holder or an operator may delete it", ""),
		judge(unless("variables.same || variables.counts"), "leaderTransitions must not decrease, or increase by more than one",
			"' (counts: from ' + string(variables.oldTransitions) + ' to ' + string(variables.newTransitions) + ')'"),
		judge(unless("variables.same || variables.creates || variables.renews || variables.acquires || variables.releases || variables.handsOver || variables.nominates"),
			"only the holder may release or hand over the lock, and a candidate may acquire it only for itself",
			writer+" + ', from ' + (variables.oldHolder == '' ? 'no holder' : variables.oldHolder) + ' to ' + (variables.newHolder == '' ? 'no holder' : variables.newHolder) + ')'"),
		judge(unless(sameField("metadata.ownerReferences")+" && "+sameField("metadata.finalizers")),
			"only an operator may change ownerReferences and finalizers of a lock", ""),
		judge(unless("variables.candidate || variables.coordinator || variables.sameCommands || variables.operates"),
			fmt.Sprintf("a change of annotations %s* or %s requires the verb %s on this object", record.Prefix, k8sresourcelock.LeaseHolderKey, OperateVerb), "' (' + request.userInfo.username + ')'"),
		judge(unless("variables.newBulk <= variables.limit || variables.newBulk <= variables.oldBulk + variables.growth"),
			"annotations, labels and data that are not the record are too large", "' (' + string(variables.newBulk) + ' bytes, limit ' + string(variables.limit) + ')'"),
		judge(unless(fmt.Sprintf("variables.candidate && !variables.same || variables.newManagers <= (variables.candidate ? %d : %d) || variables.newManagers <= variables.oldManagers", candidatesManagers, othersManagers)),
			fmt.Sprintf("the object has more than %d managers of its fields", othersManagers), "' (' + string(variables.newManagers) + ')'"),
		judge(unless(fmt.Sprintf("variables.newManaged <= %d || variables.newManaged <= variables.oldManaged + (variables.same ? 0 : %d)", managedBulk, managedGrowth)),
			"managedFields is too large", fmt.Sprintf("' (' + string(variables.newManaged) + ' characters, limit %d)'", managedBulk)),
	}
	if s.Lock == record.ConfigMap {
		all = append(all, judge(unless(sameField("immutable")), "only an operator may make a lock immutable", ""))
		all = append(all, judge(unless("variables.same || variables.creates && variables.newRecord == '' || variables.newForm && "+readableTimes("new")),
			"the record does not have the format that electors write", ""))
	}
	return all
}

// sender is the writer in a message.
const sender = "(variables.pod == '' ? request.userInfo.username + ', not bound to a pod' : 'pod ' + variables.pod)"

// aroundLocks returns the policy that checks deletions of collections, which have no name.
func aroundLocks(set string, locks []single) []Pair {
	guarded := func(s single) bool { return !s.WithoutLockGuard }
	return perPlace(set, locks, guarded, func(s single) string { return s.Namespace + "/" + string(s.Lock) }, func(group []single) part {
		var names []string
		for _, s := range group {
			names = append(names, s.Name)
		}
		namespace, kind := group[0].Namespace, group[0].Lock
		apiGroup, resource := kind.Resource()
		return part{
			what: namespace + "." + string(kind) + ".locks", namespaces: []string{namespace},
			rules: rules(apiGroup, nil, []string{resource}, []string{"DELETE"}, nil),
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConditions: []admissionv1.MatchCondition{
					{Name: "collection", Expression: nameless},
					{Name: "lock", Expression: "oldObject != null && oldObject.metadata.name in " + quoteAll(names)},
				},
				Variables: []admissionv1.Variable{{Name: "operator", Expression: operator}},
				Validations: []admissionv1.Validation{{
					Expression:        "variables.operator",
					Message:           fmt.Sprintf("only an operator may delete a collection with locks in namespace %s", namespace),
					MessageExpression: quote(fmt.Sprintf("%s %s/", kind, namespace)) + " + oldObject.metadata.name + ': only its holder or an operator may delete it'",
				}},
			},
		}
	})
}

// aroundNamespaces returns the policy that protects the namespaces of locks from deletion. It would delete a lock before the objects that
// the lock guards. A missing lock rejects every write, so the namespace could never be emptied.
func aroundNamespaces(set string, locks []single) []Pair {
	guarding := func(s single) bool { return len(s.Guards) > 0 && s.Mode == Deny }
	return perPlace(set, locks, guarding, inNamespace, func(group []single) part {
		namespace := group[0].Namespace
		return part{
			what:  namespace + ".namespace",
			rules: rules("", nil, []string{"namespaces"}, []string{"DELETE"}, []string{namespace}),
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				Validations: []admissionv1.Validation{{
					Expression: "false",
					Message: fmt.Sprintf("namespace %s contains locks. Without them the API server would reject all guarded writes, also deletions. "+
						"Remove the fence first: `pilot fence remove --set %s`, or `helm uninstall` for a fence of the chart", namespace, set),
				}},
			},
		}
	})
}

func inNamespace(s single) string { return s.Namespace }

// perPlace returns a policy for each group of locks with the same mode and the same place, for example their namespace, in order. A policy
// has one mode, so an election in mode audit does not weaken the policies of others.
func perPlace(set string, locks []single, wanted func(single) bool, place func(single) string, policy func(group []single) part) (pairs []Pair) {
	locks = slices.DeleteFunc(slices.Clone(locks), func(s single) bool { return !wanted(s) })
	alike := func(a, b single) bool { return a.Mode == b.Mode && place(a) == place(b) }
	for _, group := range grouped(locks, alike) {
		p := policy(group)
		p.set = set
		p.about = group
		p.shared = true
		p.mode = group[0].Mode
		pairs = append(pairs, p.pair())
	}
	return pairs
}

// grouped returns groups of values that are alike, in order.
func grouped[T any](all []T, alike func(a, b T) bool) (groups [][]T) {
	for _, one := range all {
		if i := slices.IndexFunc(groups, func(group []T) bool { return alike(group[0], one) }); i >= 0 {
			groups[i] = append(groups[i], one)
		} else {
			groups = append(groups, []T{one})
		}
	}
	return groups
}

// ownObjects returns policies that limit what the accounts of locks may write of a kind in the namespaces of the locks, because RBAC cannot
// limit create, patch and delete to names that are not known in advance.
func ownObjects(
	set, what string, locks []single, wanted func(single) bool, resource string,
	policy func(namespace string) ([]admissionv1.Variable, admissionv1.Validation),
) []Pair {
	return perPlace(set, locks, wanted, inNamespace, func(group []single) part {
		var users []string
		for _, s := range group {
			users = append(users, s.users()...)
		}
		slices.Sort(users)
		namespace := group[0].Namespace
		variables, validation := policy(namespace)
		return part{
			what: namespace + "." + what, namespaces: []string{namespace},
			rules: rules("coordination.k8s.io", nil, []string{resource}, []string{"CREATE", "UPDATE", "DELETE"}, nil),
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConditions: []admissionv1.MatchCondition{{Name: "candidate", Expression: isOneOf(slices.Compact(users))}},
				Variables:       append([]admissionv1.Variable{podVariable()}, variables...),
				Validations:     []admissionv1.Validation{validation},
			},
		}
	})
}
