package fence

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// lockGuard judges changes of the record in a lock object, by what it was and what it is to be:
//
//	same record           anyone: annotations, labels and data alone
//	same holder           the holder
//	to oneself            a candidate; a term that follows another's counts one more
//	to nobody             the holder
//	to somebody else      the holder, if that one has asked; a coordinator
//	fewer transitions     nobody
//
// A candidate is a pod of a declared service account. Whoever may delete the guard itself
// may do all of it: operators, and the controllers that delete what is in a namespace.
//
// That a live holder is displaced too early cannot be seen here, as CEL has no clock.
// The displaced one cannot write any more, then, so it costs a term and no safety.
func (s single) lockGuard(set string) Pair {
	name := s.name("lock")
	group, resource := s.Lock.resource()
	variables := []admissionv1.Variable{podVariable()}
	variables = append(variables, recordVariables(s.Lock, "oldObject", "old")...)
	variables = append(variables, recordVariables(s.Lock, "object", "new")...)
	variables = append(variables,
		admissionv1.Variable{Name: "operator", Expression: "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies')" +
			".name(" + quote(name) + ").check('delete').allowed()"},
		admissionv1.Variable{Name: "candidate", Expression: "variables.pod != '' && " + isOneOf(s.users())},
		admissionv1.Variable{Name: "coordinator", Expression: isOneOf(s.Coordinators)},
		admissionv1.Variable{Name: "asked", Expression: annotation("oldObject", k8sresourcelock.HandoverRequestAnnotation)},
		admissionv1.Variable{Name: "same", Expression: sameRecord(s.Lock)},
	)
	return pair(name, set, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules:     rules(group, nil, []string{resource}, []string{"CREATE", "UPDATE", "DELETE"}, nil),
			NamespaceSelector: inNamespaces([]string{s.Namespace}),
		},
		// By a condition: the deletion of a collection has no name that a rule could match.
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "lock",
			Expression: "request.operation == 'DELETE' ? oldObject != null && oldObject.metadata.name == " + quote(s.lock) + " : object.metadata.name == " + quote(s.lock),
		}},
		Variables:   variables,
		Validations: s.judgements(),
	}, nil)
}

// sameRecord is true for an update that leaves the record alone.
func sameRecord(kind LockKind) string {
	if kind == Lease {
		return "request.operation == 'UPDATE' && has(oldObject.spec) == has(object.spec) && (!has(object.spec) || object.spec == oldObject.spec)"
	}
	return "request.operation != 'DELETE' && variables.oldRecord == variables.newRecord"
}

func (s single) judgements() []admissionv1.Validation {
	where := fmt.Sprintf("%s %s/%s: ", s.Lock, s.Namespace, s.lock)
	reason := metav1.StatusReasonForbidden
	judge := func(expression, message, detail string) admissionv1.Validation {
		v := admissionv1.Validation{Expression: expression, Message: where + message, Reason: &reason}
		if detail != "" {
			v.MessageExpression = quote(where+message) + " + " + detail
		}
		return v
	}
	writer := "' (' + (variables.pod == '' ? request.userInfo.username + ', bound to no pod' : 'pod ' + variables.pod)"
	all := []admissionv1.Validation{
		judge("request.operation != 'DELETE' || variables.candidate && variables.pod == variables.oldHolder || variables.operator",
			"it is deleted by its holder or by an operator alone", ""),
		judge("request.operation == 'DELETE' || variables.newTransitions >= variables.oldTransitions || variables.operator",
			"the count of terms never goes back", "' (from ' + string(variables.oldTransitions) + ' to ' + string(variables.newTransitions) + ')'"),
		judge("request.operation == 'DELETE' || variables.same || "+s.changes()+" || variables.operator",
			"nobody but its holder gives it away, and nobody takes it but for itself",
			writer+" + ', from ' + (variables.oldHolder == '' ? 'nobody' : variables.oldHolder) + ' to ' + (variables.newHolder == '' ? 'nobody' : variables.newHolder) + ')'"),
	}
	if s.Lock == ConfigMap {
		all = append(all, judge("request.operation == 'DELETE' || variables.same || variables.newRecord.matches("+quote(recordForm)+") || variables.operator",
			"the record is not one that an elector writes", ""))
	}
	return all
}

// changes is true for a change of the record that its author may make.
func (s single) changes() string {
	const (
		create  = "request.operation == 'CREATE' && variables.newHolder == ''"
		renew   = "variables.newHolder == variables.oldHolder && variables.pod == variables.oldHolder"
		take    = "variables.newHolder == variables.pod && (variables.oldHolder == '' || variables.newTransitions > variables.oldTransitions)"
		release = "variables.newHolder == '' && variables.pod == variables.oldHolder"
		pass    = `variables.pod == variables.oldHolder && variables.asked.contains('"identity":"' + variables.newHolder + '"')`
	)
	candidate := fmt.Sprintf("variables.candidate && (%s || %s || %s || %s)", renew, take, release, pass)
	return fmt.Sprintf("%s || %s || variables.coordinator && variables.newHolder != ''", create, candidate)
}
