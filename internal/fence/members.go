package fence

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// memberGuards returns policies for Leases in the namespaces of the locks. Each process publishes a Lease with the name of
// its pod. RBAC cannot limit create, patch and delete to names that are not known in advance. So a pod
// may write its own member Lease with itself as holder, and other Leases only if RBAC permits an update by name.
func memberGuards(set string, locks []single) (pairs []Pair) {
	reason := metav1.StatusReasonForbidden
	for _, group := range byPlace(locks, func(s single) bool { return s.Members }, func(s single) string { return s.Namespace }) {
		namespace := group[0].Namespace
		var users []string
		for _, s := range group {
			users = append(users, s.users()...)
		}
		slices.Sort(users)
		name := "(request.operation == 'DELETE' ? oldObject : object).metadata.name"
		apiGroup, resource := Lease.resource()
		pairs = append(pairs, part{
			set: set, about: group, shared: true, what: namespace + ".members", mode: group[0].Mode, namespaces: []string{namespace},
			spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: rules(apiGroup, nil, []string{resource}, []string{"CREATE", "UPDATE", "DELETE"}, nil),
				},
				MatchConditions: []admissionv1.MatchCondition{{Name: "candidate", Expression: isOneOf(slices.Compact(users))}},
				Variables: []admissionv1.Variable{
					podVariable(),
					{Name: "name", Expression: name},
					{Name: "member", Expression: "variables.name.startsWith(" + quote(members.NamePrefix) + ")"},
					{Name: "own", Expression: "variables.pod != '' && variables.name == " + quote(members.NamePrefix) + " + variables.pod && " +
						"(request.operation == 'DELETE' || has(object.spec) && has(object.spec.holderIdentity) && object.spec.holderIdentity == variables.pod)"},
					{Name: "named", Expression: "authorizer.group(" + quote(apiGroup) + ").resource(" + quote(resource) + ").namespace(" + quote(namespace) +
						").name(variables.name).check('update').allowed()"},
				},
				Validations: []admissionv1.Validation{{
					Expression: "variables.member ? variables.own : request.operation != 'DELETE' && variables.named", Reason: &reason,
					Message: "a pod may write its own member Lease and the locks that it may update",
					MessageExpression: "'lease " + namespace + "/' + variables.name + ': a pod may write its own member Lease and the locks that it may update (' + " +
						"(variables.pod == '' ? request.userInfo.username + ', not bound to a pod' : 'pod ' + variables.pod) + ')'",
				}},
			},
		}.pair())
	}
	return pairs
}
