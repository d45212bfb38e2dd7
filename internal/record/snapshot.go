package record

import "time"

// Content is the content of an existing lock object.
type Content uint8

const (
	// Missing: no record.
	Missing Content = iota
	// Unreadable: a record that cannot be decoded.
	Unreadable
	// Readable: a record.
	Readable
)

// Snapshot is the lock object in one reply or watch event.
type Snapshot struct {
	Exists      bool
	UID         string // empty if the object does not exist
	Version     uint64 // grows with each write; for a deletion, the version of the deletion
	Content     Content
	Sum         uint64 // hash of the bytes of the record
	Record      Record
	Annotations Annotations
	// Strategy: a coordinator selects the holder. Preferred is the candidate that it prefers to the holder.
	Strategy  bool
	Preferred string
}

// Held reports whether there is a readable record with a holder.
func (s *Snapshot) Held() bool {
	return s.Exists && s.Content == Readable && s.Record.Holder != ""
}

// Acting reports whether the marker shows that the recorded holder is an incumbent process that acts. A
// coordinator that names a former leader keeps its marker, which then does not count.
func (s *Snapshot) Acting() bool {
	return s.Held() && s.Annotations.Marker.Matches(s.Record) && !s.ByCoordinator()
}

// Nominated reports whether another process wrote the recorded holder, which has not written itself yet and so
// does not act. An incumbent nominee removes the annotation with its first write. A peer keeps it, so renewals
// and transitions count too. A marker of the record proves that the holder has written. Only a coordinator names
// a former leader next to its marker.
func (s *Snapshot) Nominated() bool {
	n := s.Annotations.Nominated
	return s.Held() && s.Record.IsTerm(n.Identity, n.Transitions) && s.Record.Renewed == s.Record.Acquired &&
		(n.Uncounted || !s.Annotations.Marker.Matches(s.Record))
}

// ByCoordinator reports whether a coordinator named the recorded holder, which has not written itself. The
// transitions still belong to the previous term.
func (s *Snapshot) ByCoordinator() bool { return s.Nominated() && s.Annotations.Nominated.Uncounted }

// Idle reports whether no holder has written the record.
func (s *Snapshot) Idle() bool { return !s.Held() || s.Nominated() }

// Named reports whether the nomination names the recorded holder, even if that has written since.
func (s *Snapshot) Named() bool { return s.Annotations.Nominated.Identity == s.Record.Holder }

// Former returns the identity in a marker of another term than the record's. That leader was displaced by an
// elector without markers and may still act.
func (s *Snapshot) Former() string {
	if !s.Exists || s.Acting() {
		return ""
	}
	return s.Annotations.Marker.Identity
}

// Addressed reports whether there is a request to the leader of the present term.
func (s *Snapshot) Addressed() bool {
	r := s.Annotations.Request
	return s.Held() && r.AddressedTo(s.Record) &&
		r.Identity != s.Record.Holder && (r.Identity != "" || r.Reason == ForOperator)
}

// OnHold reports whether there is a hold for the present term. It does not check its duration.
func (s *Snapshot) OnHold() bool {
	return s.Held() && s.Annotations.Hold.Matches(s.Record) && s.Annotations.Hold.Seconds > 0
}

// WitnessRelease returns the time from the end of the former leader until its witness released the lock, or 0 if no witness has
// released the lock that a candidate acquires. A coordinator may have written the candidate as holder.
func (s *Snapshot) WitnessRelease() time.Duration {
	w := s.Annotations.Witness
	free := s.Exists && s.Record.Holder == "" && s.Record.Transitions == w.Transitions
	nominated := s.Nominated() && s.Record.Transitions == w.Transitions+1
	if !free && !nominated || w.After > maxWitnessRelease {
		return 0
	}
	return w.After
}

// Released returns the record of a release. wall is in nanoseconds.
func (s *Snapshot) Released(wall int64) Record {
	stamp := s.Record.Renewed.Next(wall, 0)
	return Record{Lease: time.Second, Acquired: stamp, Renewed: stamp, Transitions: s.Record.Transitions}
}

// SameRecord reports whether the record was not written between a and b.
func SameRecord(a, b Snapshot) bool {
	return a.Exists == b.Exists && a.UID == b.UID && a.Content == b.Content && a.Sum == b.Sum
}

// SameHolder reports whether both have the same holder in the same lock. The transitions may differ, because
// one process never runs the run functions of two terms.
func SameHolder(a, b Snapshot) bool {
	return a.Held() && b.Held() && a.UID == b.UID && a.Record.Holder == b.Record.Holder
}
