package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Request is what asks the leader to hand over, as noted on the lock; the zero Request is none. Identity, Key, Reason,
// Requester and Note say who is to have it, why, and who asks; Holder and Transitions which term's leader is asked; Seconds for how
// long it waits to be accepted, HoldSeconds how long an operator wants the result to last; Accepted and Refused are the answer.
type Request = core.Request

// Hold is an operator's order that the holder stays, whatever its rank; the zero Hold is none. Holder and Transitions
// say in which term, Seconds for how long, Requester, Reason (pause or transfer) and Note who gave it and why.
type Hold = core.Hold

// Notes are what this project's annotations on a lock say about the present term, for who shows elections: an
// elector goes by none that is about another.
type Notes struct {
	// Leads: the recorded holder is one of ours and acts, in the term that the record is of.
	// Handover: it passes the lock on when asked to; Unfit: it would rather not lead.
	Leads, Handover, Unfit bool
	// Former left a marker of another term behind: it may still act.
	Former string
	// Nominated: somebody else wrote the holder in, and it has not written the record itself.
	Nominated bool
	// Request and Hold are those about the present term. For how long they still count each
	// reader counts from when it first saw them.
	Request Request
	Hold    Hold
}

// DecodeNotes reads the notes of a lock. Where there is no record that can be read, none counts.
func DecodeNotes(s k8sresourcelock.Snapshot) Notes {
	snap := decode(s)
	n := Notes{Leads: snap.Acting(), Former: snap.Former(), Nominated: snap.Nominated()}
	if m := snap.Notes.Marker; n.Leads {
		n.Handover, n.Unfit = m.Handover, m.Unfit
	}
	if snap.Addressed() {
		n.Request = snap.Notes.Request
	}
	if snap.OnHold() {
		n.Hold = snap.Notes.Hold
	}
	return n
}
