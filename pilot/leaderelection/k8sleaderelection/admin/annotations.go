package admin

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Annotations are the annotations of this project on a lock, decoded. A request, hold or nomination of another term is left out,
// because electors ignore it.
type Annotations struct {
	// Leads is set if the holder has a valid marker: it is an incumbent leader in the term of the record.
	Leads bool
	// Handover is set if this leader accepts handover requests.
	Handover bool
	// Unfit is set if this leader would rather not lead.
	Unfit bool
	// Former is the identity in a marker of another term, or empty. That process may still act.
	Former string
	// Nominated is set if another process wrote the holder, and the holder has not written the record yet.
	Nominated bool
	// Request is the request of the current term. Each reader counts its seconds from when it first saw it.
	Request record.Request
	// Hold is the hold of the current term. Each reader counts its seconds from when it first saw it.
	Hold record.Hold
	// Invalid has the names of annotations with an invalid value, which electors ignore.
	Invalid []string
}

// DecodeAnnotations returns the annotations of a lock. They are zero if the lock has no readable record.
func DecodeAnnotations(s k8sresourcelock.Snapshot) Annotations {
	snap, _ := s.Decode() // the version does not matter
	n := Annotations{Leads: snap.Acting(), Former: snap.Former(), Nominated: snap.Nominated()}
	if m := snap.Annotations.Marker; n.Leads {
		n.Handover = m.Handover
		n.Unfit = m.Unfit
	}
	if snap.Addressed() {
		n.Request = snap.Annotations.Request
		n.Request.HoldSeconds = min(n.Request.HoldSeconds, int(record.MaxHold/time.Second))
	}
	if snap.OnHold() {
		n.Hold = snap.Annotations.Hold.Bounded()
	}
	n.Invalid = snap.Annotations.Invalid(s.Annotations)
	return n
}
