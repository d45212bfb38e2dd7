package leaderelection

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Status is the state of this process in an election: the status of its elector, and values that the elector does not have. Its JSON
// omits what package inspect derives from the lock object.
type Status struct {
	// Status is the status of the elector. Phase is also "disabled" if Config.Disabled is true.
	k8sleaderelection.Status
	// ElectionID and Namespace are the values of the Config. Lock is the name of the lock object, LockType is its type.
	ElectionID string   `json:"id"`
	Namespace  string   `json:"-"`
	Lock       string   `json:"-"`
	LockType   LockType `json:"-"`
	// Identity and Key are the identity and key of this candidate.
	Identity string `json:"identity"`
	Key      string `json:"key"`
	// Validity is the time for which a leader leads after an acknowledged write: the RenewDeadline.
	Validity time.Duration `json:"-"`
	// Waiting is true while this candidate waits for the lock of its Predecessor.
	Waiting bool `json:"waiting,omitempty"`
	// Running is true while RunContext runs. Warm is true after the warm-up functions have returned.
	Running bool `json:"running"`
	Warm    bool `json:"warm"`
	// Strategy is the strategy of a coordinated election. It is empty for other elections.
	Strategy string `json:"-"`
	// Uncoordinated is the reason why a coordinated election runs as without a coordinator. It is empty if a coordinator chooses
	// the leader.
	Uncoordinated string `json:"-"`
	// Ranked is true if candidates of the default revision outrank others.
	Ranked bool `json:"-"`
}

// Disabled is the Phase of an election with Config.Disabled.
const Disabled = "disabled"

// Status returns the current state.
func (l *LeaderElection) Status() Status {
	s := Status{
		ElectionID: l.cfg.ElectionID, Namespace: l.cfg.Namespace, Lock: l.cfg.lockName(), LockType: l.cfg.Lock,
		Identity: l.cfg.holder(), Key: l.cfg.key(), Validity: l.cfg.RenewDeadline,
		Ranked: !l.cfg.PerRevision, Running: l.running.Load(), Warm: l.warmed.Load(), Waiting: l.predecessor.waiting.Load(),
	}
	if l.cfg.Disabled {
		s.Phase = Disabled
		s.Leading = l.IsLeader()
	} else {
		s.Status = l.electorStatus()
	}
	if l.cfg.Coordination != nil {
		s.Strategy = l.cfg.Coordination.Strategy
		s.Uncoordinated = l.uncoordinated(s.Status)
	}
	return s
}
