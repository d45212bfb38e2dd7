package fence

import (
	"fmt"
	"strings"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// PodClaim is the key in the extra attributes of a user that contains the name of the pod to which the token is bound.
const PodClaim = "authentication.kubernetes.io/pod-name"

// quote returns a string literal of CEL.
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

// podVariable is the name of the pod that writes, or "" if the token is not bound to a pod. The expression tests for the key, because
// reading a missing key is an error in CEL.
func podVariable() admissionv1.Variable {
	claim := quote(PodClaim)
	return admissionv1.Variable{Name: "pod", Expression: "has(request.userInfo.extra) && " + claim + " in request.userInfo.extra && " +
		"request.userInfo.extra[" + claim + "].size() == 1 ? request.userInfo.extra[" + claim + "][0] : ''"}
}

// isOneOf is true for requests of the users.
func isOneOf(users []string) string { return "request.userInfo.username in " + quoteAll(users) }

// annotation returns an annotation of an object, or "". The object may be null.
func annotation(object, key string) string {
	return fmt.Sprintf("%s ? %s : ''", hasAnnotation(object, key), annotationOf(object, key))
}

func hasAnnotation(object, key string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.annotations) && %[2]s in %[1]s.metadata.annotations", object, quote(key))
}

// annotationOf returns an annotation of an object for which hasAnnotation is true.
func annotationOf(object, key string) string {
	return object + ".metadata.annotations[" + quote(key) + "]"
}

// recordBegin is the text of the record of a ConfigMap before the holder.
const recordBegin = `{"holderIdentity":"`

// The canonical form of a record, as istiod, client-go and incumbent write it. CEL and a JSON decoder may read another form differently,
// for example a record with two holders. Decoders must accept each text that these expressions match, so control characters and leading
// zeros are not allowed.
const (
	nameForm  = `[^"\\\x00-\x1f\x7f]{0,512}`
	timeForm  = `("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"|null)`
	countForm = `(0|[1-9][0-9]{0,17})`

	recordForm = `^[{]"holderIdentity":"` + nameForm + `"(,"holderKey":"` + nameForm + `")?,"leaseDurationSeconds":(0|[1-9][0-9]{0,8}),` +
		`"acquireTime":` + timeForm + `,"renewTime":` + timeForm + `,"leaderTransitions":` + countForm +
		`(,"(strategy|preferredHolder)":"` + nameForm + `")*[}]$`
)

// mostTransitions is the largest number in a Lease. No candidate writes a larger one. A larger number that an operator wrote may stay or
// decrease.
const mostTransitions = 1<<31 - 1

// recordVariables returns the variables of the record in an object: <as>Record and <as>Form (ConfigMap only), <as>Holder and
// <as>Transitions. Transitions is -1 if electors cannot read it. The object may be null.
func recordVariables(kind record.Kind, object, as string) []admissionv1.Variable {
	if kind == record.Lease {
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

// readableTimes is true if the times in a canonical record of a ConfigMap are valid. An invalid day is an error in CEL, which also rejects
// the write.
func readableTimes(as string) string {
	readable := func(name string) string {
		quoted := fmt.Sprintf("variables.%sRecord.find(%s)", as, quote(`"`+name+`":"[^"]*"`))
		return fmt.Sprintf(`(%[1]s == '' || timestamp(%[1]s.replace(%[2]s, '').replace('"', '')) >= timestamp('0001-01-01T00:00:00Z'))`, quoted, quote(`"`+name+`":"`))
	}
	return readable("acquireTime") + " && " + readable("renewTime")
}

// writer is the name of the pod of a request for which boundToPod is true. Match conditions cannot use variables.
const (
	writer     = "request.userInfo.extra['" + PodClaim + "'][0]"
	boundToPod = "has(request.userInfo.extra) && '" + PodClaim + "' in request.userInfo.extra && " +
		"request.userInfo.extra['" + PodClaim + "'].size() == 1 && " + writer + " != ''"
)

// leads is true if the pod that writes is the holder in the record of an object. The object may be null.
func (s single) leads(object string) string {
	if s.Lock == record.Lease {
		return fmt.Sprintf("%s && %[2]s != null && has(%[2]s.spec) && has(%[2]s.spec.holderIdentity) && %[3]s", boundToPod, object, s.isPod(object+".spec.holderIdentity", writer))
	}
	return fmt.Sprintf(`%s && !%s.contains('"') && %s && %s.startsWith(%s + %[2]s + '"')`, boundToPod, writer, hasAnnotation(object, k8sresourcelock.LeaderElectionRecordAnnotationKey), annotationOf(object, k8sresourcelock.LeaderElectionRecordAnnotationKey), quote(recordBegin))
}

// isPod is true if a holder is the pod. The holder has the name of the pod or, in a coordinated election, of its LeaseCandidate.
func (s single) isPod(holder, pod string) string {
	same := holder + " == " + pod
	if !s.Coordinated {
		return same
	}
	return fmt.Sprintf("(%s || %s == %s + %s)", same, holder, pod, quote("."+s.Name))
}

// plainForm matches the record of a renewal: canonical form, days that exist in each month, and transitions below the maximum. A record with
// at most plainSize characters also has valid names. Matching it is cheaper than matching recordForm.
const (
	plainSize = 512
	// plainManaged is the largest number of characters in managedFields of a renewal.
	plainManaged = 16 << 10
	plainName    = `[^"\\\x00-\x1f\x7f]*`
	plainTime    = `"[1-9][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)T([01][0-9]|2[0-3])(:[0-5][0-9]){2}Z"`
	plainForm    = `^[{]"holderIdentity":"` + plainName + `"(,"holderKey":"` + plainName + `")?,"leaseDurationSeconds":(0|[1-9][0-9]{0,8}),` +
		`"acquireTime":` + plainTime + `,"renewTime":` + plainTime + `,"leaderTransitions":(0|[1-9][0-9]{0,8})[}]$`
)

// renewal is true for a renewal by the holder: only renewTime changes, and nothing else that electors read or that could fill the object. It
// never fails. The rules of the guard allow each write for which it is true. It is one cheap expression for several rules.
func (s single) renewal() string {
	clauses := []string{"request.operation == 'UPDATE'", s.mayHold(), s.leads("oldObject")}
	if s.Lock == record.Lease {
		clauses = append(clauses, "has(object.spec)")
		for _, field := range []string{"holderIdentity", "leaseTransitions"} {
			clauses = append(clauses, fmt.Sprintf("has(object.spec.%[1]s) && has(oldObject.spec.%[1]s) && object.spec.%[1]s == oldObject.spec.%[1]s", field))
		}
		clauses = append(clauses, "has(object.spec.renewTime) && has(oldObject.spec.renewTime) && object.spec.renewTime != oldObject.spec.renewTime",
			sameField("metadata.annotations"))
	} else {
		const key = k8sresourcelock.LeaderElectionRecordAnnotationKey
		before, after := annotationOf("oldObject", key), annotationOf("object", key)
		clauses = append(clauses, hasAnnotation("object", key), before+" != "+after,
			fmt.Sprintf("%[1]s.size() <= %[2]d && %[1]s.matches(%[3]s)", after, plainSize, quote(plainForm)),
			fmt.Sprintf("%[1]s == %[2]s.replace(%[2]s.find(%[3]s), %[1]s.find(%[3]s))", before, after, quote(`"renewTime":"[^"]*"`)),
			"object.metadata.annotations.size() == oldObject.metadata.annotations.size()",
			fmt.Sprintf("object.metadata.annotations.all(k, k == %s || k in oldObject.metadata.annotations && object.metadata.annotations[k] == oldObject.metadata.annotations[k])",
				quote(k8sresourcelock.LeaderElectionRecordAnnotationKey)),
			sameField("data"), sameField("binaryData"), sameField("immutable"))
	}
	return strings.Join(append(clauses, fmt.Sprintf("(%s) <= %d", managed("object"), plainManaged), sameField("metadata.labels"), sameField("metadata.ownerReferences"), sameField("metadata.finalizers")), " && ")
}

// managers is the number of field managers of an object.
func managers(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.managedFields) ? %[1]s.metadata.managedFields.size() : 0", object)
}

// managed is the number of characters in the managedFields of an object.
func managed(object string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.managedFields) ? '%%s'.format([%[1]s.metadata.managedFields]).size() : 0", object)
}

// bulk is the number of bytes in the parts of an object that any account may write, without the annotation that contains the record.
func bulk(kind record.Kind, object string) string {
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
	if kind == record.ConfigMap {
		sum += " + " + size("data", "") + fmt.Sprintf(" + (has(%[1]s.binaryData) ? %[1]s.binaryData.filter(k, true).map(k, %[2]d + bytes(k).size() + %[1]s.binaryData[k].size()).sum() : 0)", object, keyBulk)
	}
	return object + " == null ? 0 : " + sum
}
