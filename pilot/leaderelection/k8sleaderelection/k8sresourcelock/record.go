package k8sresourcelock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of what is believed and written. The number is that of a Lease's int32
// field, for a ConfigMap too: a record must fit into both, so that an election can
// move from one to the other. A count of transitions beyond it is believed all the
// same: at the maximum the count stays, as a guard of the lock wants it, and a record
// that could neither be counted up nor down would be a lock that nobody takes.
const (
	// maxName bounds a recorded identity or key. Pod names end at 253 bytes;
	// client-go's customary identities add a UUID.
	maxName = 1024
	// maxRecord bounds the bytes of a ConfigMap's record.
	maxRecord = 16 << 10
	// maxSeconds bounds a recorded lease duration. How much of it is waited for is
	// the elector's to judge.
	maxSeconds = math.MaxInt32
)

// ErrUnreadable is wrapped by Snapshot.Unreadable: the lock object carries
// something in the place of its record that cannot be decoded or believed.
var ErrUnreadable = errors.New("the lock's record is unreadable")

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnreadable, fmt.Errorf(format, args...))
}

// decodeJSON reads a record as istiod's and client-go's decoders would, which
// ignore fields that they do not know. It is stricter where they would take
// invalid data for a free lock: null is no record.
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
	// The decoder leaves times in the local zone, which would make equal records
	// differ between machines.
	record.AcquireTime, record.RenewTime = utc(record.AcquireTime), utc(record.RenewTime)
	return record, nil
}

func utc(t metav1.Time) metav1.Time { return metav1.Time{Time: t.UTC()} }

// checkRecord reports what no lock can represent.
func checkRecord(r LeaderElectionRecord) error {
	switch {
	case len(r.HolderIdentity) > maxName:
		return fmt.Errorf("holderIdentity of %d bytes, more than %d", len(r.HolderIdentity), maxName)
	case len(r.HolderKey) > maxName:
		return fmt.Errorf("holderKey of %d bytes, more than %d", len(r.HolderKey), maxName)
	case r.LeaseDurationSeconds < 0 || r.LeaseDurationSeconds > maxSeconds:
		return fmt.Errorf("leaseDurationSeconds %d, not within 0 and %d", r.LeaseDurationSeconds, maxSeconds)
	case r.LeaderTransitions < 0:
		return fmt.Errorf("leaderTransitions %d, less than 0", r.LeaderTransitions)
	case !writable(r.AcquireTime) || !writable(r.RenewTime):
		return fmt.Errorf("acquireTime %v or renewTime %v beyond the years 0 to 9999", r.AcquireTime, r.RenewTime)
	}
	return nil
}

// writable: RFC 3339 has four digits for the year, which an offset from UTC can
// carry a readable time beyond.
func writable(t metav1.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// checkWritable reports what must not be written: beyond checkRecord, what the API
// server would refuse or store as something else.
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
