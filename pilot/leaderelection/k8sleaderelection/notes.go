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
	all := decodeNotes(s.Notes)
	if !s.Exists || s.Raw == nil || s.Unreadable != nil {
		return Notes{Former: all.Marker.Identity}
	}
	all.Nominated = nomination(s, all.Hold)
	snap := core.Snapshot{Exists: true, Content: core.Readable, Record: decodeRecord(s.Record), Notes: all}
	if all.Nominated.Uncounted {
		snap.Record.Acquired = snap.Record.Renewed
	}
	var n Notes
	switch m, r := all.Marker, snap.Record; {
	case m.Identity == "":
	case m.Identity == r.Holder && m.Transitions == r.Transitions:
		n.Leads, n.Handover, n.Unfit = true, m.Handover, m.Unfit
	default:
		n.Former = m.Identity
	}
	n.Nominated = snap.Record.Holder != "" && nominated(&snap)
	if r := all.Request; r.Holder != "" && r.Holder == snap.Record.Holder && r.Transitions == snap.Record.Transitions {
		n.Request = r
	}
	if h := all.Hold; h.Holder != "" && h.Holder == snap.Record.Holder && h.Transitions == snap.Record.Transitions && h.Seconds > 0 {
		n.Hold = h
	}
	return n
}
