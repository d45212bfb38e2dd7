package fence

import (
	"fmt"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// PodClaim is where the API server puts the name of the pod that a token is bound to,
// among what it knows of a user beyond its name.
const PodClaim = "authentication.kubernetes.io/pod-name"

// quote writes a string as CEL does.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

func quoteAll(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// podVariable is the pod that writes, "" for a token that is bound to none. The key has
// to be looked for before it is read: what is missing is an error in CEL.
func podVariable() admissionv1.Variable {
	claim := quote(PodClaim)
	return admissionv1.Variable{Name: "pod", Expression: "has(request.userInfo.extra) && " + claim + " in request.userInfo.extra && " +
		"request.userInfo.extra[" + claim + "].size() == 1 ? request.userInfo.extra[" + claim + "][0] : ''"}
}

// isOneOf is true for requests of these users.
func isOneOf(users []string) string { return "request.userInfo.username in " + quoteAll(users) }

// annotation reads one of an object, "" when it has none. The object may be null.
func annotation(object, key string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.annotations) && %[2]s in %[1]s.metadata.annotations ? %[1]s.metadata.annotations[%[2]s] : ''",
		object, quote(key))
}

// recordBegin is how a ConfigMap's record begins, up to the holder.
const recordBegin = `{"holderIdentity":"`

// recordForm is a whole record as istiod, client-go and incumbent write it. What reads
// otherwise may say one thing to CEL and another to a JSON decoder: two holders, say.
const recordForm = `^[{]"holderIdentity":"[^"\\]*"(,"holderKey":"[^"\\]*")?,"leaseDurationSeconds":[0-9]{1,10},` +
	`"acquireTime":("[^"\\]*"|null),"renewTime":("[^"\\]*"|null),"leaderTransitions":[0-9]{1,10}` +
	`(,"(strategy|preferredHolder)":"[^"\\]*")*[}]$`

// recordVariables decode what a lock object carries: <as>Record, <as>Holder and
// <as>Transitions, which is -1 where there is none. The object may be null.
func recordVariables(kind LockKind, object, as string) []admissionv1.Variable {
	if kind == Lease {
		spec := fmt.Sprintf("%[1]s != null && has(%[1]s.spec)", object)
		return []admissionv1.Variable{
			{Name: as + "Holder", Expression: fmt.Sprintf("%s && has(%[2]s.spec.holderIdentity) ? %[2]s.spec.holderIdentity : ''", spec, object)},
			{Name: as + "Transitions", Expression: fmt.Sprintf("%s && has(%[2]s.spec.leaseTransitions) ? int(%[2]s.spec.leaseTransitions) : -1", spec, object)},
		}
	}
	record := "variables." + as + "Record"
	return []admissionv1.Variable{
		{Name: as + "Record", Expression: annotation(object, k8sresourcelock.LeaderElectionRecordAnnotationKey)},
		{Name: as + "Holder", Expression: fmt.Sprintf(`%s.find(%s).replace(%s, '').replace('"', '')`,
			record, quote(`^[{]"holderIdentity":"[^"\\]*"`), quote(recordBegin))},
		{Name: as + "Transitions", Expression: fmt.Sprintf(`%[1]s.matches(%[2]s) ? int(%[1]s.find(%[2]s).find('[0-9]+')) : -1`,
			record, quote(`"leaderTransitions":[0-9]{1,10}`))},
	}
}

// holds is true when the record of the param names the pod that writes.
func holds(kind LockKind) string {
	if kind == Lease {
		return "variables.pod != '' && variables.lockHolder == variables.pod"
	}
	return "variables.pod != '' && variables.lockRecord.startsWith(" + quote(recordBegin) + ` + variables.pod + '"')`
}
