package fence

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// memberGuards judge all that the accounts write of Leases in the namespace of their locks. Each process publishes
// a Lease whose name says its Pod (package members), and RBAC can limit neither creating nor patching nor deleting to a
// name that is not known beforehand. So a Pod writes its own member's Lease, whose holder it is, and no other's; and of
// all other Leases it writes those alone that it may update by their names.
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
			set: set, about: group, shared: true, what: namespace + ".members", mode: mildest(group), namespaces: []string{namespace},
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
					Message: "a Pod writes its own member Lease and the locks that it may update",
					MessageExpression: "'lease " + namespace + "/' + variables.name + ': a Pod writes its own member Lease and the locks that it may update (' + " +
						"(variables.pod == '' ? request.userInfo.username + ', bound to no pod' : 'pod ' + variables.pod) + ')'",
				}},
			},
		}.pair())
	}
	return pairs
}
