package leaderelection

import (
	"strconv"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Status is the state of this process in an election.
type Status struct {
	// ElectionID and Namespace are those of the Config. Lock is the name of the lock object. LockType is
	// "configmap", "lease" or "multi".
	ElectionID, Namespace, Lock, LockType string
	// Identity and Key are the identity and key of this candidate.
	Identity, Key string
	// Phase is following, settling, leading, draining, releasing or done. It is "disabled" if
	// Config.Disabled is true. Reason is the cause of the last change, as one word.
	Phase, Reason string
	// Leading is true if this process leads.
	Leading bool
	// ValidityLeft is the time for which this process still leads if no further write succeeds.
	ValidityLeft time.Duration
	// Validity is the time for which a leader leads after an acknowledged write: the RenewDeadline.
	Validity time.Duration
	// HandoverWait is the age of a pending handover. For a follower it starts when the follower outranks the
	// leader or the leader is unfit. For the leader it starts when it accepts a request. 0 means that no
	// handover is pending.
	HandoverWait time.Duration
	// Waiting is true while this candidate waits for the lock of its Predecessor.
	Waiting bool
	// Running is true while RunContext runs. Warm is true after the warm-up functions have returned.
	Running, Warm bool
	// Unfit is true if a fitness check failed.
	Unfit bool
	// BackingOff is true while this candidate does not campaign after a step-down.
	BackingOff bool
	// Rejected is why the API server rejected the last write of this process as holder. It is empty after a successful write.
	Rejected string
	// Holder and HolderKey are the holder of the last seen record and its key.
	Holder, HolderKey string
	// Acting is true if the holder leads, according to the record: the holder is not only nominated, does not
	// settle, and its lease has not expired.
	Acting bool
	// LeaseDuration is the lease duration in the record.
	LeaseDuration time.Duration
	// HandsOver is true if the holder accepts handover requests.
	HandsOver bool
	// Hold is the operator command that keeps the holder in the current term. It is zero if there is none.
	Hold k8sleaderelection.Hold
	// Strategy is the strategy of a coordinated election. It is empty for other elections.
	Strategy string
	// Ranked is true if candidates of the default revision outrank others.
	Ranked bool
	// Transitions is the number of the term in the record.
	Transitions int
	// Token is the fencing token of this process. It is empty if the process has no term.
	Token string
	// Since is the start of the current phase.
	Since time.Time
	// Default is the default revision. It is empty if there is none. DefaultKnown is false if the default
	// revision was not read yet.
	Default      string
	DefaultKnown bool
}

// Status returns the current state.
func (l *LeaderElection) Status() Status {
	s := Status{
		ElectionID: l.cfg.ElectionID, Namespace: l.cfg.Namespace, Lock: l.cfg.lockName(), LockType: l.cfg.Lock.String(),
		Identity: l.cfg.holder(), Key: l.cfg.key(), Validity: l.cfg.RenewDeadline,
		Ranked: !l.cfg.PerRevision, Running: l.running.Load(), Warm: l.warmed.Load(),
	}
	if l.cfg.Coordination != nil {
		s.Strategy = l.cfg.Coordination.Strategy
	}
	if l.cfg.Disabled {
		s.Phase = "disabled"
		s.Leading = l.IsLeader()
		return s
	}
	e := l.elector.Load()
	if e == nil {
		return s
	}
	now := e.Status()
	s.Phase = now.Phase
	s.Reason = now.Reason
	s.Leading = now.Leading
	s.Since = now.Since
	s.Waiting = l.predecessor.waiting.Load()
	if s.Leading {
		s.ValidityLeft = now.ValidFor
	}
	s.Unfit = now.Unfit
	s.BackingOff = now.BackingOff
	s.Rejected = now.Rejected
	s.HandoverWait = now.HandoverWait
	s.Holder = now.Holder
	s.HolderKey = now.HolderKey
	s.Transitions = now.Transitions
	s.Acting = now.Acting
	s.LeaseDuration = now.LeaseDuration
	s.HandsOver = now.HandsOver
	s.Hold = now.Hold
	s.Default = now.Default.Revision
	s.DefaultKnown = now.Default.Synced
	if now.Term != (k8sleaderelection.Term{}) {
		s.Token = strconv.FormatUint(now.Term.Token, 10)
	}
	return s
}
