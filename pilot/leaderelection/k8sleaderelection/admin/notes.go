package admin

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Request asks the leader to hand over, as noted on the lock; the zero Request is none. Its fields:
//
//	Identity, Key string // the candidate that is to have the lock; an operator's without Identity asks for a step-down
//	Reason        string // default-revision, local-over-remote, unfit or operator
//	Requester     string // who asks
//	Note          string // an operator's reason, in words
//	Holder        string // the leader that is asked, in the term with that many Transitions
//	Transitions   int
//	Seconds       int    // how long it waits to be accepted
//	HoldSeconds   int    // an operator's: how long the new holder stays, or the old one does not campaign
//	Accepted      bool   // the leader's answer
//	Refused       string // the leader's reason; empty: not refused
type Request = core.Request

// Notes is the meaning of this project's annotations on a lock, for programs that show elections. Of requests, holds
// and nominations it has those about the present term alone: electors ignore all others.
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
	Hold    k8sleaderelection.Hold
}

// DecodeNotes reads the notes of a lock. Where there is no record that can be read, none counts.
func DecodeNotes(s k8sresourcelock.Snapshot) Notes {
	snap := codec.Decode(s)
	n := Notes{Leads: snap.Acting(), Former: snap.Former(), Nominated: snap.Nominated()}
	if m := snap.Annotations.Marker; n.Leads {
		n.Handover, n.Unfit = m.Handover, m.Unfit
	}
	if snap.Addressed() {
		n.Request = snap.Annotations.Request
	}
	if snap.OnHold() {
		n.Hold = snap.Annotations.Hold
	}
	return n
}
