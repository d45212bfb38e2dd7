package k8sresourcelock

import (
	"encoding/json"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// istiodManager is istiod's name in managedFields, which the API server takes from the
// name of its binary.
const istiodManager = "pilot-discovery"

// recordedKey is the holder's key beside a Lease's record.
//
// client-go's elector does not know the annotation and carries it along, so that
// after a takeover it names the rank of a former holder. The record itself does not
// say who wrote it: client-go and istiod store the same fields, with microseconds.
// What distinguishes them:
//
//   - A record in whole seconds is ours; the key counts. (Chance lets a peer's pass
//     once in 10^12.)
//   - Otherwise the API server's own notes (managedFields) say who wrote the record
//     last and who the annotation. The key counts when that is the same manager, or
//     when istiod wrote the record: it sets or removes the annotation each time, but
//     does not come to own one that it finds already right.
//   - It counts too when the notes are missing: not knowing the rank of a live
//     holder would have its equals preempt it, which is the greater harm.
func recordedKey(lease *coordinationv1.Lease) string {
	key := lease.Annotations[LeaseHolderKey]
	if key == "" || inWholeSeconds(lease.Spec.AcquireTime) && inWholeSeconds(lease.Spec.RenewTime) {
		return key
	}
	writers := managersOf(lease.ManagedFields, "f:spec", "f:renewTime")
	setters := managersOf(lease.ManagedFields, "f:metadata", "f:annotations", "f:"+LeaseHolderKey)
	if len(writers) == 0 || len(setters) == 0 {
		return key
	}
	for manager := range writers {
		if setters[manager] || strings.HasPrefix(manager, istiodManager) {
			return key
		}
	}
	return ""
}

func inWholeSeconds(t *metav1.MicroTime) bool {
	return t == nil || t.Time.Equal(t.Truncate(time.Second))
}

// managersOf are those who own the field at path.
func managersOf(entries []metav1.ManagedFieldsEntry, path ...string) map[string]bool {
	owners := map[string]bool{}
	for _, entry := range entries {
		if hasPath(entry.FieldsV1.GetRawBytes(), path) {
			owners[entry.Manager] = true
		}
	}
	return owners
}

func hasPath(raw []byte, path []string) bool {
	for _, step := range path {
		var node map[string]json.RawMessage
		if json.Unmarshal(raw, &node) != nil {
			return false
		}
		next, ok := node[step]
		if !ok {
			return false
		}
		raw = next
	}
	return true
}
