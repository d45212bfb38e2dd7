package leaderelection

import (
	"strconv"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Status is a picture of this process's part in an election.
type Status struct {
	// ElectionID, Namespace and Lock name the election and its lock object; LockType
	// is that object's kind.
	ElectionID, Namespace, Lock, LockType string
	// Identity and Key are this candidate's.
	Identity, Key string
	// Phase is following, settling, leading, draining, releasing or done; "disabled"
	// when elections are off. Reason is why, in one word.
	Phase, Reason string
	// Leading: this process may act now; CoverLeft is for how much longer, without
	// another write.
	Leading   bool
	CoverLeft time.Duration
	// Cover is for how long an acknowledged write of its own lets a leader act: the renew deadline.
	Cover time.Duration
	// HandoverWait is the age of a handover that is due and not done. Of a follower it counts from when it had a reason to
	// ask for the lock, because it outranks the leader or the leader is unfit; of the leader, from when it accepted a
	// request. Zero: no handover is due.
	HandoverWait time.Duration
	// Waiting reports whether this candidate waits for its Predecessor's lock and does not campaign for the election yet.
	Waiting bool
	// Running: this process takes part in the election. Warm: its warm functions have returned.
	Running, Warm bool
	// Unfit: this process should not lead, by its own Fit function.
	Unfit bool
	// Holder and HolderKey are those of the record last seen.
	Holder, HolderKey string
	// Acting: the holder acts, as far as the record tells: it was not only nominated, it does not wait for an earlier
	// one, and its lease, LeaseDuration by the record, has not run out.
	Acting        bool
	LeaseDuration time.Duration
	// HandsOver: the holder passes the lock on when it is asked.
	HandsOver bool
	// Hold is an operator's order that keeps the holder there, in the present term; zero when there is none.
	Hold k8sleaderelection.Hold
	// Strategy is the one by which a coordinator chooses who leads; empty: no coordinator does.
	Strategy string
	// Ranked: candidates of the default revision go before others.
	Ranked bool
	// Transitions is the record's count of terms; Token is this process's fencing
	// token, empty when it has no term.
	Transitions int
	Token       string
	// Since is when the present phase began.
	Since time.Time
	// Default is the default revision by which this candidate ranks; DefaultKnown is
	// false until that was read. Known and empty: there is none.
	Default      string
	DefaultKnown bool
}

// Status returns a consistent picture.
func (l *LeaderElection) Status() Status {
	s := Status{
		ElectionID: l.cfg.ElectionID, Namespace: l.cfg.Namespace, Lock: l.cfg.lockName(), LockType: l.cfg.Lock.String(),
		Identity: l.cfg.holder(), Key: l.cfg.key(), Cover: l.cfg.RenewDeadline,
		Ranked: !l.cfg.PerRevision, Running: l.running.Load(), Warm: l.warmed.Load(),
	}
	if l.cfg.Coordination != nil {
		s.Strategy = l.cfg.Coordination.Strategy
	}
	if l.cfg.Disabled {
		s.Phase, s.Leading = "disabled", l.IsLeader()
		return s
	}
	e := l.elector.Load()
	if e == nil {
		return s
	}
	now := e.Status()
	s.Phase, s.Reason, s.Leading, s.Since = now.Phase, now.Reason, now.Leading, now.Since
	s.Waiting = l.predecessor.waiting.Load()
	if s.Leading {
		s.CoverLeft = now.ValidFor
	}
	s.Unfit, s.HandoverWait = now.Unfit, now.HandoverWait
	s.Holder, s.HolderKey, s.Transitions = now.Holder, now.HolderKey, now.Transitions
	s.Acting, s.LeaseDuration, s.HandsOver, s.Hold = now.Acting, now.LeaseDuration, now.HandsOver, now.Hold
	s.Default, s.DefaultKnown = now.Default.Revision, now.Default.Synced
	if now.Term != (k8sleaderelection.Term{}) {
		s.Token = strconv.FormatUint(now.Term.Token, 10)
	}
	return s
}
