package fence

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// candidateGuards judge what the accounts write of LeaseCandidates in the namespace of their coordinated locks, for which RBAC knows no
// names beforehand. A Pod writes those with its name, "<pod>.<lock>". A coordinator writes the pingTime of others alone,
// and deletes those that have been pinged and do not answer. For how long they have not, CEL cannot know.
func candidateGuards(set string, locks []single) (pairs []Pair) {
	reason := metav1.StatusReasonForbidden
	for _, group := range byPlace(locks, func(s single) bool { return s.Coordinated }, func(s single) string { return s.Namespace }) {
		namespace := group[0].Namespace
		var users []string
		for _, s := range group {
			users = append(users, s.users()...)
		}
		slices.Sort(users)
		pairs = append(pairs, part{
			set: set, about: group, shared: true, what: namespace + ".candidates", mode: mildest(group), namespaces: []string{namespace},
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: rules("coordination.k8s.io", nil, []string{"leasecandidates"}, []string{"CREATE", "UPDATE", "DELETE"}, nil),
				},
				MatchConditions: []admissionv1.MatchCondition{{Name: "candidate", Expression: isOneOf(slices.Compact(users))}},
				Variables: []admissionv1.Variable{
					podVariable(),
					{Name: "candidate", Expression: "request.operation == 'DELETE' ? oldObject : object"},
					{Name: "name", Expression: "variables.candidate.metadata.name"},
					// The lock is compared too: names of Pods may hold dots, and what begins with "a." may be that of the Pod "a.b".
					{Name: "own", Expression: "variables.pod != '' && (variables.name == variables.pod || variables.name == variables.pod + '.' + variables.candidate.spec.leaseName)"},
					{Name: "asks", Expression: "request.operation == 'UPDATE' && has(object.spec.pingTime) && " + sameButPing + " && " + sameMetadata},
					{Name: "collects", Expression: "request.operation == 'DELETE' && has(oldObject.spec.pingTime) && " +
						"(!has(oldObject.spec.renewTime) || oldObject.spec.renewTime < oldObject.spec.pingTime)"},
				},
				Validations: []admissionv1.Validation{{
					Expression: "variables.own || variables.asks || variables.collects", Reason: &reason,
					Message: "a Pod writes its own LeaseCandidates, asks others and collects those that do not answer",
					MessageExpression: "'leasecandidate " + namespace + "/' + variables.name + ': a Pod writes its own, asks others and collects those that do not answer (' + " +
						"(variables.pod == '' ? request.userInfo.username + ', bound to no pod' : 'pod ' + variables.pod) + ')'",
				}},
			},
		}.pair())
	}
	return pairs
}

// sameButPing is true for an update of a LeaseCandidate that leaves its spec as it is, but for the pingTime.
var sameButPing = func() string {
	all := ""
	for _, field := range []string{"leaseName", "binaryVersion", "emulationVersion", "strategy", "renewTime"} {
		if all != "" {
			all += " && "
		}
		all += "(has(oldObject.spec." + field + ") ? has(object.spec." + field + ") && object.spec." + field + " == oldObject.spec." + field + " : !has(object.spec." + field + "))"
	}
	return all
}()

// sameMetadata is true for an update that leaves labels, annotations, owners and finalizers as they are.
var sameMetadata = sameField("labels") + " && " + sameField("annotations") + " && " + sameField("ownerReferences") + " && " + sameField("finalizers")
