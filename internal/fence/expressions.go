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

// writer is the pod's name in a request for which boundToPod is true. Conditions know no variables.
const (
	writer     = "request.userInfo.extra['" + PodClaim + "'][0]"
	boundToPod = "has(request.userInfo.extra) && '" + PodClaim + "' in request.userInfo.extra && " +
		"request.userInfo.extra['" + PodClaim + "'].size() == 1 && " + writer + " != ''"
)

// leads is true when the record in an object names the pod that writes. The object may be null.
func (s single) leads(object string) string {
	if s.Lock == Lease {
		return fmt.Sprintf("%s && %[2]s != null && has(%[2]s.spec) && has(%[2]s.spec.holderIdentity) && %[3]s", boundToPod, object, s.isPod(object+".spec.holderIdentity", writer))
	}
	return fmt.Sprintf(`%s && !%s.contains('"') && %s && %s.startsWith(%s + %[2]s + '"')`, boundToPod, writer, hasRecord(object), recordOf(object), quote(recordBegin))
}

// isPod is true when a holder is that pod: it is called as the pod or, where a coordinator chooses, as the pod's candidate.
func (s single) isPod(holder, pod string) string {
	same := holder + " == " + pod
	if !s.Coordinated {
		return same
	}
	return fmt.Sprintf("(%s || %s == %s + %s)", same, holder, pod, quote("."+s.lock))
}

// recordOf is a ConfigMap's record, where hasRecord is true.
func recordOf(object string) string {
	return object + ".metadata.annotations[" + quote(k8sresourcelock.LeaderElectionRecordAnnotationKey) + "]"
}

func hasRecord(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.annotations) && %[2]s in %[1]s.metadata.annotations", object, quote(k8sresourcelock.LeaderElectionRecordAnnotationKey))
}

// plainForm matches the record of a renewal: of the canonical form, with times of which a calendar has the day, and a
// count that a term more does not bring to its end. With at most plainSize characters, its names are short enough, too. It is
// cheaper to match than recordForm, since it counts less.
const (
	plainSize = 512
	plainName = `[^"\\\x00-\x1f\x7f]*`
	plainTime = `"[1-9][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)T([01][0-9]|2[0-3])(:[0-5][0-9]){2}Z"`
	plainForm = `^[{]"holderIdentity":"` + plainName + `"(,"holderKey":"` + plainName + `")?,"leaseDurationSeconds":(0|[1-9][0-9]{0,8}),` +
		`"acquireTime":` + plainTime + `,"renewTime":` + plainTime + `,"leaderTransitions":(0|[1-9][0-9]{0,8})[}]$`
)

// renewal is true for what its holder writes again and again: the record with another time of renewal, ownerReferences and finalizers
// as they are. It is never an error, and whatever it is true for, the guard's rules admit: it says renews, counts, and the
// form of the record in one, to be cheap.
func (s single) renewal() string {
	clauses := []string{"request.operation == 'UPDATE'", s.mayHold(), s.leads("oldObject")}
	if s.Lock == Lease {
		clauses = append(clauses, "has(object.spec)")
		for _, field := range []string{"holderIdentity", "leaseTransitions"} {
			clauses = append(clauses, fmt.Sprintf("has(object.spec.%[1]s) && has(oldObject.spec.%[1]s) && object.spec.%[1]s == oldObject.spec.%[1]s", field))
		}
		clauses = append(clauses, "has(object.spec.renewTime) && has(oldObject.spec.renewTime) && object.spec.renewTime != oldObject.spec.renewTime")
	} else {
		before, after := recordOf("oldObject"), recordOf("object")
		clauses = append(clauses, hasRecord("object"), before+" != "+after,
			fmt.Sprintf("%[1]s.size() <= %[2]d && %[1]s.matches(%[3]s)", after, plainSize, quote(plainForm)),
			fmt.Sprintf("%[1]s == %[2]s.replace(%[2]s.find(%[3]s), %[1]s.find(%[3]s))", before, after, quote(`"renewTime":"[^"]*"`)))
	}
	return strings.Join(append(clauses, sameField("ownerReferences"), sameField("finalizers")), " && ")
}

// managers is how many field managers an object has.
func managers(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.managedFields) ? %[1]s.metadata.managedFields.size() : 0", object)
}

// bulk is how many bytes an object carries in what anyone may write, annotations aside
// that has the record.
func bulk(kind LockKind, object string) string {
	size := func(field, leaveOut string) string {
		where := object + "." + field
		keys := where
		if leaveOut != "" {
			keys += ".filter(k, k != " + quote(leaveOut) + ")"
		} else {
			keys += ".filter(k, true)"
		}
		return fmt.Sprintf("(has(%[1]s) ? %[2]s.map(k, %[3]d + bytes(k).size() + bytes(%[1]s[k]).size()).sum() : 0)", where, keys, keyBulk)
	}
	sum := size("metadata.annotations", k8sresourcelock.LeaderElectionRecordAnnotationKey) + " + " + size("metadata.labels", "")
	if kind == ConfigMap {
		sum += " + " + size("data", "") + fmt.Sprintf(" + (has(%[1]s.binaryData) ? %[1]s.binaryData.filter(k, true).map(k, %[2]d + bytes(k).size() + %[1]s.binaryData[k].size()).sum() : 0)", object, keyBulk)
	}
	return object + " == null ? 0 : " + sum
}
