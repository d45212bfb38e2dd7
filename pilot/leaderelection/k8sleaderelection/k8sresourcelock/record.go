package k8sresourcelock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of valid records. A ConfigMap record must also fit into a Lease, so that an election can move to a Lease.
// Therefore the int32 range of a Lease limits both. leaderTransitions may exceed it when read: rejecting it would
// leave a lock that no candidate can acquire.
const (
	// maxName is the maximum length of a recorded identity or key in bytes. Pod names have at most 253 bytes.
	// client-go identities often append a UUID.
	maxName = 1024
	// maxRecord is the maximum size of a ConfigMap record in bytes.
	maxRecord = 16 << 10
	// maxSeconds is the maximum lease duration in a record. The elector decides how long it waits.
	maxSeconds = math.MaxInt32
)

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnreadable, fmt.Errorf(format, args...))
}

// decodeJSON decodes a record as istiod and client-go do: it ignores unknown fields. Unlike them it rejects null,
// because they would treat null as a free lock.
func decodeJSON(raw []byte) (LeaderElectionRecord, error) {
	if len(raw) > maxRecord {
		return LeaderElectionRecord{}, unreadable("%d bytes, more than %d", len(raw), maxRecord)
	}
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return LeaderElectionRecord{}, unreadable("not a JSON object")
	}
	var record LeaderElectionRecord
	if err := json.Unmarshal(raw, &record); err != nil {
		return LeaderElectionRecord{}, unreadable("%w", err)
	}
	if err := checkRecord(record); err != nil {
		return LeaderElectionRecord{}, unreadable("%w", err)
	}
	// The decoder uses the local zone. UTC makes equal records equal on all machines.
	record.AcquireTime, record.RenewTime = utc(record.AcquireTime), utc(record.RenewTime)
	return record, nil
}

func utc(t metav1.Time) metav1.Time { return metav1.Time{Time: t.UTC()} }

// checkRecord returns an error if a lock cannot represent the record.
func checkRecord(r LeaderElectionRecord) error {
	switch {
	case len(r.HolderIdentity) > maxName:
		return fmt.Errorf("holderIdentity of %d bytes, more than %d", len(r.HolderIdentity), maxName)
	case len(r.HolderKey) > maxName:
		return fmt.Errorf("holderKey of %d bytes, more than %d", len(r.HolderKey), maxName)
	case r.LeaseDurationSeconds < 0 || r.LeaseDurationSeconds > maxSeconds:
		return fmt.Errorf("leaseDurationSeconds %d, not between 0 and %d", r.LeaseDurationSeconds, maxSeconds)
	case r.LeaderTransitions < 0:
		return fmt.Errorf("leaderTransitions %d, less than 0", r.LeaderTransitions)
	case !writable(r.AcquireTime) || !writable(r.RenewTime):
		return fmt.Errorf("acquireTime %v or renewTime %v not between the years 0 and 9999", r.AcquireTime, r.RenewTime)
	}
	return nil
}

// writable reports whether RFC 3339 can represent t, which has four digits for the year. The conversion to UTC can
// move a valid time out of this range.
func writable(t metav1.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// checkWritable returns an error if the record must not be written. It also rejects values that the API server
// would reject or change.
func checkWritable(r LeaderElectionRecord) error {
	if err := checkRecord(r); err != nil {
		return err
	}
	switch {
	case r.LeaseDurationSeconds < 1:
		return fmt.Errorf("leaseDurationSeconds %d, less than 1", r.LeaseDurationSeconds)
	case !utf8.ValidString(r.HolderIdentity):
		return fmt.Errorf("holderIdentity %q is not UTF-8", r.HolderIdentity)
	case !utf8.ValidString(r.HolderKey):
		return fmt.Errorf("holderKey %q is not UTF-8", r.HolderKey)
	}
	return nil
}
