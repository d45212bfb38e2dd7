package debug

import (
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// State is all that the page shows of one moment.
type State struct {
	// Identity, Revision and Version are the process's.
	Identity, Revision, Version string
	// Default is the default revision; not synced: not known.
	Default k8sleaderelection.DefaultRevision
	// Elections are shown in this order.
	Elections []Election
}

// Election is one election as this process sees it.
type Election struct {
	// ID, Namespace, Lock and Kind name the election, its lock object and that object's kind.
	ID, Namespace, Lock, Kind string
	// Cluster is where the lock lies; empty: in the server's own cluster.
	Cluster string
	// Leader and Key are the holder's, by the record; an empty Leader: nobody holds it.
	Leader, Key string
	// Strategy is the one by which a coordinator chooses who leads; empty: nobody chooses.
	Strategy string
	// Acting: the holder may act, as far as can be told. It is false while the holder settles
	// or was only nominated, and when its lease has run out.
	Acting bool
	// HandsOver: the holder passes the lock on when it is asked. Ranked: candidates of the
	// default revision go before others. LeaseSeconds are the record's.
	HandsOver, Ranked bool
	LeaseSeconds      int
	// Hold keeps the holder there, by an operator's order.
	Hold *inspect.Hold
	// Phase and Reason are this process's, Since when the phase began.
	Phase, Reason string
	Since         time.Time
	// Leading: this process may act; CoverLeft is for how much longer without another write,
	// of Cover after each.
	Leading          bool
	CoverLeft, Cover time.Duration
	// Transitions is the record's count of terms, Token this process's fencing token.
	Transitions int
	Token       string
	// Fence is what the fence's self-test found last, in a few words; empty: there is no fence.
	Fence       string
	FenceBroken bool
	// Gate is open or shut; empty: writes pass no gate.
	Gate string
	// Candidates are those that take part, the leader among them; nil: not known.
	Candidates []inspect.Candidate
	// Problem wants somebody to look; empty: there is none.
	Problem string
}

// name tells an election from all others of a process.
type name struct{ cluster, namespace, kind, lock string }

func (e Election) name() name { return name{e.Cluster, e.Namespace, e.Kind, e.Lock} }

// inspected is the election in the words of inspect, which knows what rank would do.
func (e Election) inspected() inspect.Election {
	state := inspect.Holds
	switch {
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

// ifDefault is what would become of the election were that the default revision.
func (e Election) ifDefault(d k8sleaderelection.DefaultRevision) inspect.Outcome {
	i := e.inspected()
	return i.If(d, i.Known(e.Candidates != nil))
}
