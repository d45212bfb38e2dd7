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

// The canonical form of a record: as istiod, client-go and incumbent write it. What reads
// otherwise may say one thing to CEL and another to a JSON decoder: two holders, say. What
// these take has to be what decoders take, too: no control characters, no leading zeros.
const (
	nameForm  = `[^"\\\x00-\x1f\x7f]{0,512}`
	timeForm  = `("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"|null)`
	countForm = `(0|[1-9][0-9]{0,17})`

	recordForm = `^[{]"holderIdentity":"` + nameForm + `"(,"holderKey":"` + nameForm + `")?,"leaseDurationSeconds":(0|[1-9][0-9]{0,8}),` +
		`"acquireTime":` + timeForm + `,"renewTime":` + timeForm + `,"leaderTransitions":` + countForm +
		`(,"(strategy|preferredHolder)":"` + nameForm + `")*[}]$`
)

// mostTransitions is the most that a Lease can carry. Nobody counts beyond it; what an operator has put
// there stays as it is, or becomes less.
const mostTransitions = 1<<31 - 1

// recordVariables decode what a lock object carries: <as>Record and <as>Form (of a
// ConfigMap), <as>Holder and <as>Transitions, which is -1 where electors can read none. The
// object may be null.
func recordVariables(kind LockKind, object, as string) []admissionv1.Variable {
	if kind == Lease {
		spec := fmt.Sprintf("%[1]s != null && has(%[1]s.spec)", object)
		return []admissionv1.Variable{
			{Name: as + "Holder", Expression: fmt.Sprintf("%s && has(%[2]s.spec.holderIdentity) ? %[2]s.spec.holderIdentity : ''", spec, object)},
			{Name: as + "Transitions", Expression: fmt.Sprintf("%s && has(%[2]s.spec.leaseTransitions) ? int(%[2]s.spec.leaseTransitions) : -1", spec, object)},
		}
	}
	record, form := "variables."+as+"Record", "variables."+as+"Form"
	count := fmt.Sprintf("int(%s.find(%s).find('[0-9]+'))", record, quote(`"leaderTransitions":[0-9]+`))
	return []admissionv1.Variable{
		{Name: as + "Record", Expression: annotation(object, k8sresourcelock.LeaderElectionRecordAnnotationKey)},
		{Name: as + "Form", Expression: record + ".matches(" + quote(recordForm) + ")"},
		{Name: as + "Holder", Expression: fmt.Sprintf(`%s.find(%s).replace(%s, '').replace('"', '')`,
			record, quote(`^[{]"holderIdentity":"[^"\\]*"`), quote(recordBegin))},
		{Name: as + "Transitions", Expression: form + " ? " + count + " : -1"},
	}
}

// readableTimes is true when the times of a ConfigMap's record, which has the canonical
// form, are ones. A day that no month has is an error in CEL, which refuses the write as well.
func readableTimes(as string) string {
	readable := func(name string) string {
		quoted := fmt.Sprintf("variables.%sRecord.find(%s)", as, quote(`"`+name+`":"[^"]*"`))
		return fmt.Sprintf(`(%[1]s == '' || timestamp(%[1]s.replace(%[2]s, '').replace('"', '')) >= timestamp('0001-01-01T00:00:00Z'))`, quoted, quote(`"`+name+`":"`))
	}
	return readable("acquireTime") + " && " + readable("renewTime")
}

// holds is true when the record of the param names the pod that writes.
func holds(kind LockKind) string {
	if kind == Lease {
		return "variables.pod != '' && variables.lockHolder == variables.pod"
	}
	return "variables.pod != '' && variables.lockRecord.startsWith(" + quote(recordBegin) + ` + variables.pod + '"')`
}

// bulk is how many bytes an object carries in what anyone may write, annotations aside
// that the record lies in.
func bulk(kind LockKind, object string) string {
	size := func(field, leaveOut string) string {
		where := object + "." + field
		keys := where
		if leaveOut != "" {
			keys += ".filter(k, k != " + quote(leaveOut) + ")"
		} else {
			keys += ".filter(k, true)"
		}
		return fmt.Sprintf("(has(%[1]s) ? %[2]s.map(k, bytes(k).size() + bytes(%[1]s[k]).size()).sum() : 0)", where, keys)
	}
	sum := size("metadata.annotations", k8sresourcelock.LeaderElectionRecordAnnotationKey) + " + " + size("metadata.labels", "")
	if kind == ConfigMap {
		sum += " + " + size("data", "") + fmt.Sprintf(" + (has(%[1]s.binaryData) ? %[1]s.binaryData.filter(k, true).map(k, bytes(k).size() + %[1]s.binaryData[k].size()).sum() : 0)", object)
	}
	return object + " == null ? 0 : " + sum
}
