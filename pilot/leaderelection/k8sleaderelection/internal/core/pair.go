package core

// Pair is a lock of two objects. A migration uses it to move an election from one kind of object (primary) to
// another (secondary). Each object excludes the candidates that use it alone, as long as no two candidates use
// different objects alone.
//
// A record is written to the primary and then to the secondary. It is acknowledged when both are stored. The
// Version of an absent object is the last known one.
type Pair struct{ Primary, Secondary Snapshot }

// Half is one object of a pair.
type Half uint8

const (
	Primary Half = iota
	Secondary
)

// Other returns the other object of the pair.
func (h Half) Other() Half { return 1 - h }

// Of returns one of the two objects.
func (p *Pair) Of(h Half) *Snapshot {
	if h == Primary {
		return &p.Primary
	}
	return &p.Secondary
}

// UID returns the UIDs of both objects.
func (p Pair) UID() UID { return UID{First: p.Primary.UID.First, Second: p.Secondary.UID.First} }

// Version returns a number that grows with each write to either object.
func (p Pair) Version() uint64 { return p.Primary.Version + p.Secondary.Version }

// newer returns the object that was written last.
func (p Pair) newer() Half {
	if p.Secondary.Version > p.Primary.Version {
		return Secondary
	}
	return Primary
}

// NeedsBoth is the annotation of a holder that needs both objects of a pair. The zero value is none.
type NeedsBoth struct {
	Identity    string
	Transitions int
	Other       string // UID of the other object at the time of the write; empty: it did not exist
}

// presence is how the record of one object of a pair names a holder.
type presence uint8

const (
	// vacant: no object or no record.
	vacant presence = iota
	// invalid: an unreadable record.
	invalid
	// ended: a record without a holder.
	ended
	// nominee: the holder was written by another process and has not written itself.
	nominee
	// claim: the holder needs both objects. This gives no right to act: the other write may be in progress, or
	// the record is left over.
	claim
	// alone: the holder needs this object only: a candidate of the first or third step of a migration, or a
	// peer.
	alone
)

func (s Snapshot) presence() presence {
	r := s.Record
	switch {
	case s.Content == Unreadable:
		return invalid
	case !s.Exists || s.Content == Missing:
		return vacant
	case r.Holder == "":
		return ended
	case s.Nominated():
		return nominee
	case r.isTerm(s.Annotations.Needs.Identity, s.Annotations.Needs.Transitions):
		return claim
	}
	return alone
}

// inTerm reports whether the object has a record with the holder and term of r.
func (s Snapshot) inTerm(r Record) bool {
	return s.Exists && s.Content == Readable && s.Record.Holder == r.Holder && s.Record.Transitions == r.Transitions
}

// Select returns the object that counts, and whether its term is in both objects:
//
//   - An unreadable object counts first.
//   - The same term in both: the secondary, because requests and holds may be in either.
//   - A holder that needs one object alone counts.
//   - Otherwise the record of one object counts.
func (p Pair) Select(self string) (which Half, both bool) {
	first := p.Primary.presence()
	second := p.Secondary.presence()
	switch {
	case first == invalid:
		return Primary, false
	case second == invalid:
		return Secondary, false
	case first >= claim && second >= claim && p.Primary.inTerm(p.Secondary.Record):
		return Secondary, true
	// Two steps of a migration that must not run together. The own record does not count.
	case first == alone && second == alone && p.Primary.Record.Holder == self:
		return Secondary, false
	case first == alone && second == alone && p.Secondary.Record.Holder == self:
		return Primary, false
	case !p.Secondary.Exists:
		return Primary, false
	case !p.Primary.Exists:
		return Secondary, false
	case first == second:
		return p.newer(), p.Primary.inTerm(p.Secondary.Record)
	case first == alone || second == vacant:
		return Primary, false
	case second == alone || first == vacant:
		return Secondary, false
	case first == claim:
		return p.claimed(), false
	case second == claim:
		return p.remaining(), false
	}
	return p.newer(), p.Primary.inTerm(p.Secondary.Record)
}

// claimed selects between a claim in the primary and a secondary that is free or has a nominee. The claim may
// still be in progress, unless the secondary was recreated, has a later term, or nominates the same candidate later:
// the count of a recreated secondary is lower.
func (p Pair) claimed() Half {
	again := p.Secondary.presence() == nominee && p.Secondary.Record.Holder == p.Primary.Record.Holder
	laterTerm := p.newer() == Secondary && (again || p.Secondary.Record.Transitions > p.Primary.Record.Transitions)
	recreated := p.Secondary.UID.First != p.Primary.Annotations.Needs.Other
	if laterTerm || recreated {
		return Secondary
	}
	return Primary
}

// remaining selects between a claim in the secondary and a primary that is free or has a nominee. The holder
// has lost the primary, so its term is over. A release or handover in progress is not disturbed.
func (p Pair) remaining() Half {
	end := p.Secondary.Record.Transitions
	if p.Primary.presence() == nominee {
		end++
	}
	if p.newer() == Secondary || p.Primary.Record.Transitions == end {
		return Secondary
	}
	return Primary
}

// PairWrite is the write of one record to both objects.
type PairWrite struct {
	Self   string
	Base   Pair // snapshots that it was decided on
	Record Record
}

// IsRenewal reports whether the write continues a term that is in both objects.
func (w PairWrite) IsRenewal() bool {
	return w.Base.Primary.inTerm(w.Record) && w.Base.Secondary.inTerm(w.Record)
}

// IsClaim reports whether the write begins a term of this candidate. A claim first checks that the secondary
// can be written. Otherwise a candidate without that permission would block all others.
func (w PairWrite) IsClaim() bool { return w.Record.Holder == w.Self && !w.IsRenewal() }

// NeedsAnnotation returns the annotation next to the record on one object if the other object is other.
func (w PairWrite) NeedsAnnotation(other Snapshot) NeedsBoth {
	if w.Record.Holder != w.Self {
		return NeedsBoth{}
	}
	return NeedsBoth{Identity: w.Record.Holder, Transitions: w.Record.Transitions, Other: other.UID.First}
}

// MergeAnnotations returns the annotations for the second write, if others have changed the secondary after
// the primary was written. Their request or hold is kept, unless it was replaced on the primary since.
func (w PairWrite) MergeAnnotations(v PairView, now Snapshot, annotations Annotations) Annotations {
	was := w.Base.Secondary.Annotations
	if w.IsRenewal() && now.Annotations.Request != was.Request && !v.outdated(Secondary, onlyRequest) {
		annotations.Request = now.Annotations.Request
	}
	if w.IsRenewal() && now.Annotations.Hold != was.Hold && !v.outdated(Secondary, onlyHold) {
		annotations.Hold = now.Annotations.Hold
	}
	return annotations
}

// ReplacesHold reports whether a new hold on one object must also replace the hold on the other. Of two
// different holds the newer object counts, so a later label would restore the old hold.
func (w PairWrite) ReplacesHold(other Snapshot, hold Hold) bool {
	return other.Annotations.Hold != (Hold{}) && other.Annotations.Hold != hold && other.inTerm(w.Record)
}

// MustNotOverwrite reports whether the record must not be written over the present secondary, after the
// primary was written. A holder that needs the secondary alone may act. A term
// with equal or higher transitions came later.
func (w PairWrite) MustNotOverwrite(now Snapshot) bool {
	was := w.Base.Secondary
	term := now.Record.Transitions
	switch {
	case now.Exists != was.Exists || now.UID != was.UID:
		return true // deleted or recreated
	case sameRecord(now, was) && now.Annotations.Nominated == was.Annotations.Nominated:
		return false // only annotations or labels changed
	}
	switch now.presence() {
	case ended, claim:
		return !w.IsClaim() || term >= w.Record.Transitions
	case nominee:
		return !w.IsClaim() || term > w.Record.Transitions
	case vacant, invalid, alone:
	}
	return true
}
