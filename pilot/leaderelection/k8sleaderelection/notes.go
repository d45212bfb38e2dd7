package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Request is who asks the leader to hand over, as it stands on the lock; the zero Request is none.
type Request = core.Request

// Hold is an operator's word that the holder stays, whatever its rank; the zero Hold is none.
type Hold = core.Hold

// Notes are what the annotations of this project on a lock say, for who shows elections.
// An elector believes none without its guard, and neither do these.
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
