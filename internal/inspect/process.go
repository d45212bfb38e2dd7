package inspect

import (
	"cmp"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Process is the state of a process in an election, with the gate and the fence of its writes.
type Process struct {
	leaderelection.Status
	// ValidUntil is the end of the validity if no further write succeeds. It is zero if the process does not lead.
	ValidUntil time.Time `json:"validUntil,omitzero"`
	// Gate is open or shut. It is empty without a gate.
	Gate string `json:"gate,omitempty"`
	// Fence is the last result of the fence's self-test. It is nil without a fence.
	Fence *fence.State `json:"fence,omitempty"`
}

// FromStatus returns an election as a process observes it, without candidates. The elector of the process has measured whether the
// lease expired.
func FromStatus(s leaderelection.Status, now time.Time) Election {
	e := observed(s)
	e.Ranked = s.Ranked
	e.Uncoordinated = cmp.Or(s.Uncoordinated, e.Uncoordinated)
	e.Process = &Process{Status: s}
	if s.ValidFor > 0 {
		e.Process.ValidUntil = now.Add(s.ValidFor)
	}
	settles := e.Former != "" || s.Holder == s.Identity
	switch {
	case s.Phase == leaderelection.Disabled:
		e.setHolder(s.Identity, s.Key)
		e.State = Free
		if s.Leading {
			e.State = Leads
		}
		e.Process.Acting = s.Leading
	case !s.Known:
		e.State = Unread
	case (e.State == Leads || e.State == Holds) && !s.Acting && !settles:
		e.State = Expired
	}
	return e
}

// Acting reports whether the holder may act, as the process observes it: it is not only nominated, it does not settle, and its lease
// has not expired. It is false if no process observes the election.
func (e Election) Acting() bool { return e.Process != nil && e.Process.Acting && e.Led() }

// observed returns the election of the lock object that an elector has seen.
func observed(s leaderelection.Status) Election {
	l := Lock{Namespace: s.Namespace, Name: s.Lock, strategy: s.Strategy}
	_, l.Kind = s.LockType.Object()
	switch object := s.Object.(type) {
	case *coordinationv1.Lease:
		l.Snapshot = k8sresourcelock.LeaseSnapshot(object)
	case *corev1.ConfigMap:
		l.Snapshot = k8sresourcelock.ConfigMapSnapshot(object)
	}
	return Of(l)
}
