package fence

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/record"
)

// memberGuards returns policies for Leases in the namespaces of the locks. Each process publishes a Lease with the name of
// its pod. A pod may write its own member Lease with itself as holder, and other Leases only if RBAC permits an update by name.
func memberGuards(set string, locks []single) []Pair {
	group, resource := record.Lease.Resource()
	return ownObjects(set, "members", locks, func(s single) bool { return s.Members }, resource, func(namespace string) ([]admissionv1.Variable, admissionv1.Validation) {
		return []admissionv1.Variable{
				{Name: "name", Expression: "(request.operation == 'DELETE' ? oldObject : object).metadata.name"},
				{Name: "member", Expression: "variables.name.startsWith(" + quote(members.NamePrefix) + ")"},
				{Name: "own", Expression: "variables.pod != '' && variables.name == " + quote(members.NamePrefix) + " + variables.pod && " +
					"(request.operation == 'DELETE' || has(object.spec) && has(object.spec.holderIdentity) && object.spec.holderIdentity == variables.pod)"},
				{Name: "named", Expression: "authorizer.group(" + quote(group) + ").resource(" + quote(resource) + ").namespace(" + quote(namespace) +
					").name(variables.name).check('update').allowed()"},
			}, admissionv1.Validation{
				Expression: "variables.member ? variables.own : request.operation != 'DELETE' && variables.named",
				Message:    "a pod may write its own member Lease and the locks that it may update",
				MessageExpression: "'lease " + namespace + "/' + variables.name + ': a pod may write its own member Lease and the locks that it may update (' + " +
					sender + " + ')'",
			}
	})
}
