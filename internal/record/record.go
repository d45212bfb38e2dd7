package record

import "time"

// Record is the decoded record of the lock. Its stamps come from the writer and are never compared with a
// local clock.
type Record struct {
	Holder, Key       string
	Lease             time.Duration
	Acquired, Renewed Stamp
	Transitions       int
}

// IsTerm reports whether the record belongs to this holder and term.
func (r Record) IsTerm(holder string, transitions int) bool {
	return holder != "" && r.Holder == holder && r.Transitions == transitions
}

// Stamp is a time in a record, in microseconds since 1970 by the clock of its writer. Stamps are compared for
// equality only. 0 means none.
type Stamp int64

// Second is the resolution of a ConfigMap and of the records of istiod.
const Second = Stamp(time.Second / time.Microsecond)

// maxLead limits how far a recorded stamp may be ahead of the wall clock. A stamp further ahead is replaced.
const maxLead = 24 * 60 * 60 * Second

// Next returns the stamp for a write over a record with this stamp: the wall clock in whole seconds, but at least step
// above the recorded stamp. Without a step it is in whole seconds, because acquireTime shows the writer of a Lease. wall is in
// nanoseconds.
func (s Stamp) Next(wall int64, step Stamp) Stamp {
	now := Stamp(wall/int64(time.Second)) * Second
	if s < now || s > now+maxLead {
		return now
	}
	if step == 0 {
		return s + (Second-s%Second)%Second
	}
	return s - s%step + step
}

// StampOf returns the stamp of a time. The zero time is 0.
func StampOf(t time.Time) Stamp {
	if t.IsZero() {
		return 0
	}
	return Stamp(t.UnixMicro())
}

// Time is the inverse of StampOf.
func (s Stamp) Time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(s)).UTC()
}

// NominationSeconds is the lease duration in a record by which a coordinator names a holder, also Kubernetes' coordinator.
const NominationSeconds = 5
