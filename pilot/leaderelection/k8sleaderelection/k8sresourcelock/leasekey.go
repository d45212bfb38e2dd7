package k8sresourcelock

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// istiodManager is the field manager of istiod in managedFields. The API server derives it from the name of the
// binary.
const istiodManager = "pilot-discovery"

// recordedKey returns the key of the holder of a Lease, or "" if the annotation belongs to a former holder.
//
// client-go preserves the annotation but does not update it. The record does not name its writer: client-go and
// istiod store the same fields with microseconds. The rules are:
//
//   - If acquireTime is in whole seconds and renewTime less than a millisecond above, this project wrote the record, so
//     the key counts. See core.Config.Resolution. A peer writes such a record with probability 10^-9.
//   - Otherwise managedFields names the last writer of the record and of the annotation. The key counts if they are the
//     same manager, or if istiod wrote the record. istiod sets or removes the annotation with each write, but does not
//     become its owner if the value does not change.
//   - The key also counts if managedFields is missing. Without the key of a live holder, candidates of equal
//     rank would preempt it, which is worse.
func recordedKey(lease *coordinationv1.Lease) string {
	key := lease.Annotations[LeaseHolderKey]
	if key == "" || aboveSecond(lease.Spec.AcquireTime) == 0 && aboveSecond(lease.Spec.RenewTime) < time.Millisecond {
		return key
	}
	writers := managersOf(lease.ManagedFields, "renewTime")
	setters := managersOf(lease.ManagedFields, LeaseHolderKey)
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

// aboveSecond returns the time since the last whole second.
func aboveSecond(t *metav1.MicroTime) time.Duration {
	if t == nil {
		return 0
	}
	return t.Sub(t.Truncate(time.Second))
}

// managersOf returns the managers that own a field or an annotation.
func managersOf(entries []metav1.ManagedFieldsEntry, field string) map[string]bool {
	owners := map[string]bool{}
	for _, e := range entries {
		if owns(e, field) {
			owners[e.Manager] = true
		}
	}
	return owners
}

func owns(e metav1.ManagedFieldsEntry, field string) bool {
	return e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:`+field+`"`)
}
