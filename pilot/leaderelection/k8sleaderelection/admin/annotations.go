package admin

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Request is a handover request on a lock. The zero Request is none.
type Request struct {
	// Identity is the candidate to hand over to. A request of an operator without Identity is a step-down.
	// Key is the key of the candidate.
	Identity, Key string
	// Reason is default-revision, local-over-remote, unfit or operator.
	Reason string
	// Requester wrote the request.
	Requester string
	// Note is a text by the operator.
	Note string
	// Holder and Transitions identify the term that the request is addressed to.
	Holder      string
	Transitions int
	// Seconds is how long the request waits for its acceptance.
	Seconds int
	// Accepted is set if the leader accepted the request.
	Accepted bool
	// Refused is why the leader refused the request, or empty.
	Refused string
	// HoldSeconds is set by an operator: how long the new holder stays, or how long the old one does not campaign.
	HoldSeconds int
}

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
	Request Request
	// Hold is the hold of the current term. Each reader counts its seconds from when it first saw it.
	Hold k8sleaderelection.Hold
	// Invalid has the names of annotations with an invalid value, which electors ignore.
	Invalid []string
}

// DecodeAnnotations returns the annotations of a lock. They are zero if the lock has no readable record.
func DecodeAnnotations(s k8sresourcelock.Snapshot) Annotations {
	snap := codec.Decode(s)
	n := Annotations{Leads: snap.Acting(), Former: snap.Former(), Nominated: snap.Nominated()}
	if m := snap.Annotations.Marker; n.Leads {
		n.Handover = m.Handover
		n.Unfit = m.Unfit
	}
	if snap.Addressed() {
		n.Request = Request(snap.Annotations.Request)
		n.Request.HoldSeconds = min(n.Request.HoldSeconds, int(core.MaxHold/time.Second))
	}
	if snap.OnHold() {
		n.Hold = k8sleaderelection.Hold(snap.Annotations.Hold.Bounded())
	}
	a := snap.Annotations
	for name, valid := range map[string]bool{
		k8sresourcelock.MarkerAnnotation:          a.Marker != core.Marker{},
		k8sresourcelock.HandoverRequestAnnotation: a.Request != core.Request{},
		k8sresourcelock.HoldAnnotation:            a.Hold != core.Hold{},
	} {
		if s.Annotations[name] != "" && !valid {
			n.Invalid = append(n.Invalid, name)
		}
	}
	slices.Sort(n.Invalid)
	return n
}
