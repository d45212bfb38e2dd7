package k8sresourcelock

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
)

// seed makes hashes of records comparable within this process.
var seed = maphash.MakeSeed()

// Decode decodes the record and the annotations. The error is not nil if ResourceVersion is not a number. The result is then
// complete without Version.
func (s Snapshot) Decode() (record.Snapshot, error) {
	version, err := parseVersion(s.ResourceVersion)
	out := record.Snapshot{Exists: s.Exists, UID: string(s.UID), Version: version}
	if !s.Exists {
		return out, err
	}
	out.Sum = maphash.Bytes(seed, s.Raw)
	out.Strategy = s.Strategy != ""
	if record.ValidateIdentity(s.PreferredHolder) == nil { // otherwise the handover could not be written
		out.Preferred = s.PreferredHolder
	}
	switch {
	case s.Unreadable != nil:
		out.Content = record.Unreadable
	case s.Raw != nil:
		out.Content = record.Readable
		out.Record = decodeRecord(s.Record)
	}
	return out.Decode(s.Annotations), err
}

// parseVersion parses a resourceVersion. Empty is 0.
func parseVersion(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a decimal number: %w", s, err)
	}
	return version, nil
}

func decodeRecord(r LeaderElectionRecord) record.Record {
	return record.Record{
		Holder: r.HolderIdentity, Key: r.HolderKey,
		Lease:    time.Duration(min(r.LeaseDurationSeconds, maxSeconds)) * time.Second, // locks of the caller may have more
		Acquired: record.StampOf(r.AcquireTime.Time), Renewed: record.StampOf(r.RenewTime.Time),
		Transitions: r.LeaderTransitions,
	}
}

// Encode returns the record as locks store it.
func Encode(r record.Record) LeaderElectionRecord {
	return LeaderElectionRecord{
		HolderIdentity: r.Holder, HolderKey: r.Key,
		LeaseDurationSeconds: int(r.Lease / time.Second),
		AcquireTime:          metav1.Time{Time: r.Acquired.Time()}, RenewTime: metav1.Time{Time: r.Renewed.Time()},
		LeaderTransitions: r.Transitions,
	}
}

// Writer returns the field manager that last wrote a field of the record or an annotation, by managedFields. It is empty if unknown.
func (s Snapshot) Writer(field string) string {
	if _, ok := s.Object.(*corev1.ConfigMap); ok && field == record.LeaseDuration {
		field = LeaderElectionRecordAnnotationKey
	}
	manager, _ := LastWriter(s.ManagedFields, field)
	return manager
}

// LastWriter returns the field manager that last wrote a field or an annotation, and when. The API server sets this time, in seconds.
func LastWriter(entries []metav1.ManagedFieldsEntry, field string) (manager string, at time.Time) {
	for _, e := range entries {
		if e.Time != nil && owns(e, field) && e.Time.After(at) {
			manager = e.Manager
			at = e.Time.Time
		}
	}
	return manager, at
}
