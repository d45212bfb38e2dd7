package page

import (
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// FromStatus returns an election as the page shows it, without its candidates, gate, fence and cluster.
func FromStatus(now leaderelection.Status) Election {
	e := Election{
		ID: now.ElectionID, Namespace: now.Namespace, Lock: now.Lock, Kind: lockKind(now.LockType),
		Leader: now.Holder, Key: now.HolderKey, Acting: now.Acting, Strategy: now.Strategy, HandsOver: now.HandsOver, Ranked: now.Ranked,
		LeaseSeconds: int(now.LeaseDuration / time.Second), Transitions: now.Transitions, Token: now.Token,
		Phase: now.Phase, Reason: now.Reason, Since: now.Since, Leading: now.Leading, ValidityLeft: now.ValidityLeft, Validity: now.Validity,
	}
	if e.Strategy != "" {
		e.Leader = inspect.Pod(e.Leader, now.Lock)
	}
	if h := now.Hold; h.Seconds > 0 {
		e.Hold = &inspect.Hold{Reason: h.Reason, Requester: h.Requester, Note: h.Note, Seconds: h.Seconds}
	}
	if now.Rejected != "" {
		e.Problem = "the API server rejects this process as holder: " + now.Rejected
	}
	if now.Phase == disabled {
		e.Leader = now.Identity
		e.Key = now.Key
		e.Acting = now.Leading
	}
	return e
}

// disabled is the phase without elections: every process leads, without a lock.
const disabled = "disabled"

// lockKind returns the object kind of a lock type.
func lockKind(lockType string) string {
	if lockType == leaderelection.LockTypeConfigMap.String() {
		return inspect.ConfigMap
	}
	return inspect.Lease
}
