package core

// Pair is a lock that is two objects, each as one answer or watch event showed it. An
// election moves by way of it from one kind of object to another: the primary is the kind
// that it comes from, the secondary the one that it goes to. Each of them excludes the
// candidates that use that one alone, as long as no two candidates use different ones alone.
//
// A record is written to the primary, guarded, and then to the secondary; it is acknowledged
// when both are. Of an absent object the Version is the last that was known.
type Pair struct{ Primary, Secondary Snapshot }

// Half is one of a pair's objects.
type Half uint8

const (
	Primary Half = iota
	Secondary
)

// Other is the pair's other object.
func (h Half) Other() Half { return 1 - h }

// Of is one of the two objects.
func (p *Pair) Of(h Half) *Snapshot {
	if h == Primary {
		return &p.Primary
	}
	return &p.Secondary
}

// UID names both objects.
func (p Pair) UID() UID { return UID{First: p.Primary.UID.First, Second: p.Secondary.UID.First} }

// Version grows with each write to either object, as the version of neither does alone.
func (p Pair) Version() uint64 { return p.Primary.Version + p.Secondary.Version }

// newer is the object that was written last.
func (p Pair) newer() Half {
	if p.Secondary.Version > p.Primary.Version {
		return Secondary
	}
	return Primary
}

// NeedsBoth is the annotation by which a holder says that it needs both objects of a
// pair. The zero value is none.
type NeedsBoth struct {
	Identity    string
	Transitions int
	Other       string // the other object's UID when the record was written; empty: there was none
}

// presence says whether, and how, the record of one object of a pair names a holder.
type presence uint8

const (
	// vacant: no object, or none with a record.
	vacant presence = iota
	// unbelievable: the record cannot be read.
	invalid
	// ended: the last holder's term has.
	ended
	// nominee: the holder was written in by another, and has not written itself.
	nominee
	// claim: of a holder that says it needs both objects. By itself this gives no right to
	// act: the other write is under way, or the record is left over from a term that ended there.
	claim
	// alone: of a holder that needs this object only, a candidate of the first or of the
	// third step of a migration, or a peer.
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
	case s.Named() && r.Acquired == r.Renewed:
		return nominee // a peer keeps the annotation, and its renewals tell
	case r.isTerm(s.Annotations.Needs.Identity, s.Annotations.Needs.Transitions):
		return claim
	}
	return alone
}

// inTerm reports whether the object carries a record of r's holder and term.
func (s Snapshot) inTerm(r Record) bool {
	return s.Exists && s.Content == Readable && s.Record.Holder == r.Holder && s.Record.Transitions == r.Transitions
}

// Shown picks the object that counts, and says whether its term stands in both. What is shown is never more than one of the two
// says, and at least as much as the one that matters in either step of a migration:
//
//   - Either unreadable: that one.
//   - The same term in both: that, with the secondary's notes. Requests and holds may
//     stand on either.
//   - A holder that needs one object alone: that holder. Which step the migration is in
//     shows in which object it is, and what the other says is then of no account.
//   - Otherwise one object's record.
func (p Pair) Select(self string) (which Half, both bool) {
	first, second := p.Primary.presence(), p.Secondary.presence()
	switch {
	case first == invalid:
		return Primary, false
	case second == invalid:
		return Secondary, false
	case first >= claim && second >= claim && p.Primary.inTerm(p.Secondary.Record):
		return Secondary, true
	// The two steps that must not meet, or what one left behind. Never oneself.
	case first == alone && second == alone && p.Primary.Record.Holder == self:
		return Secondary, false
	case first == alone && second == alone && p.Secondary.Record.Holder == self:
		return Primary, false
	case first == alone && second == alone:
		return p.newer(), false
	case !p.Secondary.Exists:
		return Primary, false
	case !p.Primary.Exists:
		return Secondary, false
	case first == vacant && second == vacant:
		return p.newer(), false
	case first == alone || second == vacant:
		return Primary, false
	case second == alone || first == vacant:
		return Secondary, false
	case first == claim && second == claim:
		return p.newer(), false
	case first == claim:
		return p.claimed(), false
	case second == claim:
		return p.remaining(), false
	}
	return p.newer(), p.Primary.inTerm(p.Secondary.Record)
}

// claimed judges a claim in the primary beside a secondary that is free or nominates a
// candidate. Its holder may be writing the secondary just now, and then must not be
// disturbed. It no longer can when the secondary is another object than the claim was decided
// on, or has come to count a later term.
func (p Pair) claimed() Half {
	passed := p.newer() == Secondary && p.Secondary.Record.Transitions > p.Primary.Record.Transitions
	anew := p.Secondary.UID.First != p.Primary.Annotations.Needs.Other
	if passed || anew {
		return Secondary
	}
	return Primary
}

// remaining judges a claim in the secondary beside a primary that is free or nominates a
// candidate. Its holder has lost the primary, so its term is over. If it is passing the lock
// on, in the order primary and secondary, it is let finish.
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

// PairWrite is one record on its way into both objects.
type PairWrite struct {
	Self   string
	Base   Pair // the state that it was decided on
	Record Record
}

// Renews reports whether the write goes on with a term that stands in both objects.
func (w PairWrite) IsRenewal() bool {
	return w.Base.Primary.inTerm(w.Record) && w.Base.Secondary.inTerm(w.Record)
}

// Claims reports whether the write begins a term of the candidate's own. Before it touches
// the primary it asks whether the secondary could be written: a candidate that may not would
// otherwise take the primary again and again, never lead, and keep all others from leading.
func (w PairWrite) IsClaim() bool { return w.Record.Holder == w.Self && !w.IsRenewal() }

// Needs is the note beside the record on one object, when the other is that. Of a nominee or
// of nobody the candidate cannot say what it needs.
func (w PairWrite) NeedsAnnotation(other Snapshot) NeedsBoth {
	if w.Record.Holder != w.Self {
		return NeedsBoth{}
	}
	return NeedsBoth{Identity: w.Record.Holder, Transitions: w.Record.Transitions, Other: other.UID.First}
}

// Carried are the notes beside the record on the secondary, when the primary was written and others have changed
// the secondary: a request or a hold of theirs is not undone, unless it has been replaced on the primary since.
func (w PairWrite) MergeAnnotations(v PairView, now Snapshot, notes Annotations) Annotations {
	was := w.Base.Secondary.Annotations
	if w.IsRenewal() && now.Annotations.Request != was.Request && !v.outdated(Secondary, onlyRequest) {
		notes.Request = now.Annotations.Request
	}
	if w.IsRenewal() && now.Annotations.Hold != was.Hold && !v.outdated(Secondary, onlyHold) {
		notes.Hold = now.Annotations.Hold
	}
	return notes
}

// Aligns reports whether a hold that was written to one object is to replace what the other shows. Of two that
// differ the newer object's counts, and a label on the one would bring back what an operator has ended.
func (w PairWrite) ReplacesHold(other Snapshot, hold Hold) bool {
	return other.Annotations.Hold != (Hold{}) && other.Annotations.Hold != hold && other.inTerm(w.Record)
}

// Yields reports whether the record must not be written over what the secondary shows now,
// after the primary was written. With the primary ours, nobody who needs both can act. A
// holder that needs the secondary alone can; and whoever wrote a term that ours does not
// exceed has come later.
func (w PairWrite) MustNotOverwrite(now Snapshot) bool {
	was, term := w.Base.Secondary, now.Record.Transitions
	switch {
	case now.Exists != was.Exists || now.UID != was.UID:
		return true // deleted or made anew
	case sameRecord(now, was) && now.Annotations.Nominated == was.Annotations.Nominated:
		return false // notes or labels alone
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
