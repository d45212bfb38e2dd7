package fence

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// candidateGuards returns policies for LeaseCandidates in the namespaces of coordinated locks. A pod may write those with its name,
// "<pod>.<lock>". A coordinator may write only the pingTime of others, and delete candidates that did not respond to a ping. CEL has no
// clock, so the policy does not check for how long.
func candidateGuards(set string, locks []single) []Pair {
	return ownObjects(set, "candidates", locks, func(s single) bool { return s.Coordinated }, "leasecandidates", func(namespace string) ([]admissionv1.Variable, admissionv1.Validation) {
		return []admissionv1.Variable{
				{Name: "candidate", Expression: "request.operation == 'DELETE' ? oldObject : object"},
				{Name: "name", Expression: "variables.candidate.metadata.name"},
				// The lock is compared too, because "a.b.lock" can belong to pod "a" or "a.b".
				{Name: "own", Expression: "variables.pod != '' && (variables.name == variables.pod || variables.name == variables.pod + '.' + variables.candidate.spec.leaseName)"},
				{Name: "pings", Expression: "request.operation == 'UPDATE' && has(object.spec.pingTime) && " + sameButPing + " && " + sameMetadata},
				{Name: "collects", Expression: "request.operation == 'DELETE' && has(oldObject.spec.pingTime) && " +
					"(!has(oldObject.spec.renewTime) || oldObject.spec.renewTime < oldObject.spec.pingTime)"},
			}, admissionv1.Validation{
				Expression: "variables.own || variables.pings || variables.collects",
				Message:    "a pod may write its own LeaseCandidates, ping others, and delete LeaseCandidates without a response",
				MessageExpression: "'leasecandidate " + namespace + "/' + variables.name + ': a pod may write its own, ping others, and delete LeaseCandidates without a response (' + " +
					sender + " + ')'",
			}
	})
}

// sameButPing is true for an update of a LeaseCandidate that changes only pingTime in the spec.
var sameButPing = func() string {
	var all []string
	for _, field := range []string{"leaseName", "binaryVersion", "emulationVersion", "strategy", "renewTime"} {
		all = append(all, fmt.Sprintf("(has(oldObject.spec.%[1]s) ? has(object.spec.%[1]s) && object.spec.%[1]s == oldObject.spec.%[1]s : !has(object.spec.%[1]s))", field))
	}
	return strings.Join(all, " && ")
}()

// sameMetadata is true for an update that does not change labels, annotations, owners and finalizers.
var sameMetadata = sameField("metadata.labels") + " && " + sameField("metadata.annotations") + " && " + sameField("metadata.ownerReferences") + " && " + sameField("metadata.finalizers")
