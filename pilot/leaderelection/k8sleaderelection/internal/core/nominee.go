package core

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// FailedNominees are challengers that were nominated and did not acquire the lock, for example because a
// permission is missing. Each candidate observes this, so the next leader refuses their requests too.
type FailedNominees struct {
	Names [4]string // latest first; if it is full, the requests of all challengers are refused
	Until Instant   // requests are refused until then
	Steps uint8     // failures in a row
}

const (
	refusalTime    = 10 * time.Second // after the first failure; doubled with each further one
	maxRefusalTime = 5 * time.Minute
)

// include reports whether requests of the challenger are refused now.
func (f FailedNominees) include(challenger string, now Instant) bool {
	return now < f.Until && (f.Names[len(f.Names)-1] != "" || slices.Contains(f.Names[:], challenger))
}

// failedNominees returns the failed nominees after next, which follows s.
func (c Config) failedNominees(s State, next Snapshot, now Instant) FailedNominees {
	f := s.Failed
	nominee := s.Snap.Record.Holder
	replaced := next.Exists && next.Content == record.Readable && next.UID == s.Snap.UID && next.Version > s.Snap.Version
	switch same := next.Record.Holder == nominee; {
	case !s.Snap.Nominated() || s.Snap.ByCoordinator() || nominee == c.Self || !replaced || same && next.Nominated():
		return f
	case same:
		return FailedNominees{}
	}
	if f.Until.After(maxRefusalTime) < now { // older problems
		f = FailedNominees{}
	}
	if !slices.Contains(f.Names[:], nominee) {
		f.Names = [4]string{nominee, f.Names[0], f.Names[1], f.Names[2]}
	}
	f.Until = now.After(min(refusalTime<<f.Steps, maxRefusalTime))
	f.Steps = min(f.Steps+1, maxBackOffShift)
	return f
}
