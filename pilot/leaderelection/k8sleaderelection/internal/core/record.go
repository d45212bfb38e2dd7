package core

import "incumbent.dev/incumbent/internal/record"

// The lock object is decoded by package record.
type (
	Record      = record.Record
	Stamp       = record.Stamp
	Content     = record.Content
	Marker      = record.Marker
	Nomination  = record.Nomination
	Request     = record.Request
	Hold        = record.Hold
	Annotations = record.Annotations
	Snapshot    = record.Snapshot
)

// nominationIn returns the nomination in next, which follows s. The annotation has no term, and peers never
// remove it. So an annotation that was seen when it did not count (another holder, no holder, or a renewal) still belongs to
// that term, unless a hold of an operator names the new one. A nomination is written together with its record, so an annotation that
// appears later is forged.
func nominationIn(s, next Snapshot) Nomination {
	was := s.Annotations.Nominated
	is := next.Annotations.Nominated
	appeared := s.Held() && s.UID == next.UID && s.Record == next.Record && was.Identity != is.Identity
	if appeared || next.Acting() {
		return Nomination{}
	}
	named := next.Annotations.Hold.Reason == record.HoldForTransfer && next.Annotations.Hold.Holder == is.Identity
	left := s.UID == next.UID && was.Identity == is.Identity && !s.Nominated()
	if left && !named && !is.Uncounted && was.Transitions <= is.Transitions {
		return was
	}
	return is
}

// hasFormer reports whether there is a marker of another term and another candidate. The own marker does not count: a
// process ends its run functions before it campaigns again.
func hasFormer(s Snapshot, self string) bool {
	return s.Former() != "" && s.Former() != self
}

// endedWell reports whether b shows that the term in a ended after its run functions returned: by a drained
// release or a handover. A marker that the holder in a had found does not show how its own term ended.
func endedWell(a, b Snapshot) bool {
	if !b.Exists || a.UID != b.UID || b.Version < a.Version || b.Content != record.Readable {
		return false
	}
	if m := b.Annotations.Marker; m != (Marker{}) && (a.Acting() || m != a.Annotations.Marker) {
		return false
	}
	if b.Record.Holder == "" {
		return b.Record.Transitions == a.Record.Transitions
	}
	if b.ByCoordinator() {
		// Only the leader itself removes its marker, in its drained release.
		return a.Acting() && b.Annotations.Marker == (Marker{}) && b.Record.Transitions == a.Record.Transitions
	}
	return b.Nominated() && b.Record.Transitions == after(a.Record.Transitions)
}
