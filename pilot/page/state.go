package page

import (
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// State is the state of all elections at one time.
type State struct {
	// Identity, Revision and Version describe the process.
	Identity, Revision, Version string
	// Default is the default revision, not synced if unknown.
	Default k8sleaderelection.DefaultRevision
	// Elections are in display order.
	Elections []Election
}

// Election is the state of an election as observed by this process.
type Election struct {
	// ID, Namespace, Lock and Kind identify the election, its lock object and the kind of the object.
	ID, Namespace, Lock, Kind string
	// Cluster is the cluster of the lock. Empty means the server's own cluster.
	Cluster string
	// Leader and Key are the holder and its key in the record. Leader is empty if the lock has no holder.
	Leader, Key string
	// Strategy is the strategy of a coordinated election, else empty.
	Strategy string
	// Acting reports that the holder may act. It is false while the holder settles or is only nominated, and after its lease
	// expired.
	Acting bool
	// HandsOver reports that the holder accepts handover requests. Ranked reports that candidates of the default revision
	// outrank others. LeaseSeconds is the lease duration of the record.
	HandsOver, Ranked bool
	LeaseSeconds      int
	// Hold is the hold of an operator.
	Hold *inspect.Hold
	// LockState and LockText are the state of the lock, read by a LockReader, if it differs from what this process observes. Else
	// they are empty.
	LockState inspect.State
	LockText  string
	// Phase, Reason and Since are the phase of this process, its cause and its start.
	Phase, Reason string
	Since         time.Time
	// Leading reports that this process may act. ValidityLeft is the remaining validity, Validity the validity after a renewal.
	Leading                bool
	ValidityLeft, Validity time.Duration
	// Transitions is leaderTransitions of the record, Token the fencing token of this process.
	Transitions int
	Token       string
	// Fence is the last result of the fence's self-test. Empty means no fence. FenceBroken reports that it failed.
	Fence       string
	FenceBroken bool
	// Gate is open or shut. Empty means no gate.
	Gate string
	// Candidates includes the leader. It is nil if unknown.
	Candidates []inspect.Candidate
	// Problem describes a problem that a user must solve. Empty means none.
	Problem string
}

// name identifies an election within a process.
type name struct{ cluster, namespace, kind, lock string }

func (e Election) name() name { return name{e.Cluster, e.Namespace, e.Kind, e.Lock} }

// inspected converts the election for package inspect, which predicts the effect of rank.
func (e Election) inspected() inspect.Election {
	state := inspect.Holds
	switch {
	case e.LockState != "":
		state = e.LockState
	case e.Leader == "":
		state = inspect.Free
	case e.HandsOver:
		state = inspect.Leads
	}
	revision, remote := revisionOf(e.Key)
	return inspect.Election{
		Namespace: e.Namespace, Name: e.Lock, Lock: e.Kind, State: state,
		Holder: e.Leader, Key: e.Key, Revision: revision, Remote: remote, Ranked: e.Ranked,
		Strategy: e.Strategy, HandsOver: e.HandsOver, LeaseSeconds: e.LeaseSeconds, Hold: e.Hold, Candidates: e.Candidates,
	}
}
