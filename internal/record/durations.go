package record

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// LeaseDuration is the field of the lease in a record.
const LeaseDuration = "leaseDurationSeconds"

// Limits of durations on a lock. Every user with write access can change them.
const (
	// longLease is how many times longer than the own lease a recorded lease may be without a report.
	longLease = 10
	// MaxRequest limits how long a request can be pending.
	MaxRequest = time.Hour
	// MaxHold limits a hold and a cool-down, so that an upgrade is not blocked forever.
	MaxHold = 7 * 24 * time.Hour
	// maxWitnessRelease limits the time in the annotation of a witness.
	maxWitnessRelease = time.Hour
	// leaseBound is the least longest lease of another process.
	leaseBound = time.Hour
)

// LeaseBound returns the longest recorded lease that counts for a process with its own lease.
func LeaseBound(own time.Duration) time.Duration { return max(longLease*own, leaseBound) }

// LongerLease returns the longer of the own and a recorded lease, within LeaseBound.
func LongerLease(own, recorded time.Duration) time.Duration {
	return max(own, min(recorded, LeaseBound(own)))
}

// RequestTime returns how long a request can be pending.
func RequestTime(seconds int) time.Duration { return bounded(seconds, MaxRequest) }

// HoldTime returns the duration of a hold or a cool-down.
func HoldTime(seconds int) time.Duration { return bounded(seconds, MaxHold) }

func bounded(seconds int, longest time.Duration) time.Duration {
	return time.Duration(min(max(seconds, 0), int(longest/time.Second))) * time.Second
}

// LongDuration is a duration on a lock that no process of this project writes.
type LongDuration struct {
	// Field is a field of the record or an annotation. Part is the field in the annotation, or empty.
	Field, Part string
	// Recorded is its value. Above Limit it is reported. Counts is how long it counts at most.
	Recorded, Limit, Counts time.Duration
}

// Name returns the field with its part.
func (d LongDuration) Name() string { return strings.TrimSuffix(d.Field+" "+d.Part, " ") }

// Report returns the sentence for log, Event and tools. writer is the field manager that wrote the field, or empty.
func (d LongDuration) Report(s *Snapshot, writer string) string {
	counts := fmt.Sprintf("counts as %v", d.Counts)
	switch d.Counts {
	case d.Recorded:
		counts = "counts completely"
	case 0:
		counts = "does not count"
	}
	return fmt.Sprintf("%s is %v, longer than %v, and %s. Its last writer is %s, and the holder is %s",
		d.Name(), d.Recorded, d.Limit, counts, cmp.Or(writer, "unknown"), cmp.Or(s.Record.Holder, "empty"))
}

// LongDurations returns the durations that a process with its own lease has to report: a recorded lease of more than ten times the own
// one, and each duration of an annotation in effect that exceeds its limit.
func (s *Snapshot) LongDurations(own time.Duration) (all []LongDuration) {
	add := func(field, part string, recorded, limit, counts time.Duration) {
		if recorded > limit {
			all = append(all, LongDuration{Field: field, Part: part, Recorded: recorded, Limit: limit, Counts: counts})
		}
	}
	const seconds, hold = "seconds", "holdSeconds"
	if s.Held() {
		add(LeaseDuration, "", s.Record.Lease, longLease*own, LongerLease(own, s.Record.Lease))
	}
	if r := s.Annotations.Request; s.Addressed() {
		add(HandoverRequestAnnotation, seconds, unbounded(r.Seconds), MaxRequest, MaxRequest)
		add(HandoverRequestAnnotation, hold, unbounded(r.HoldSeconds), MaxHold, MaxHold)
	}
	if s.OnHold() {
		add(HoldAnnotation, seconds, unbounded(s.Annotations.Hold.Seconds), MaxHold, MaxHold)
	}
	add(WitnessReleaseAnnotation, "", s.Annotations.Witness.After, maxWitnessRelease, 0)
	return all
}

// unbounded converts seconds without an overflow.
func unbounded(seconds int) time.Duration { return bounded(seconds, 1<<62) }
