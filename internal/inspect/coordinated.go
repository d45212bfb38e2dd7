package inspect

import (
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// defaultRevision is the strategy that can be predicted from member Leases.
const defaultRevision = "incumbent.dev/DefaultRevision"

// Pod returns the Pod of an identity. The identity of a candidate that requests a strategy is "<pod>.<lock>" (coordination.CandidateName).
func Pod(identity, lock string) string { return strings.TrimSuffix(identity, "."+lock) }

// Identity returns the identity of a Pod's candidate in the lock.
func (e Election) Identity(pod string) string {
	if pod == "" || e.apart || e.Strategy == "" && !requestStrategy(e.Candidates) {
		return pod
	}
	return pod + "." + e.Name
}

// Coordinated reports whether a coordinator chooses the leader. A Lease keeps its strategy if the candidates are no longer coordinated.
func (e Election) Coordinated() bool { return e.Strategy != "" && !e.apart && e.Uncoordinated == "" }

func requestStrategy(candidates []Candidate) bool {
	return slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Strategy != "" })
}

// among returns the election with candidates.
func (e Election) among(candidates []Candidate) Election {
	e.Candidates = candidates
	if e.Strategy == "" && requestStrategy(candidates) {
		e = e.pods()
	}
	for _, c := range candidates {
		if !c.Late && c.Uncoordinated != "" {
			e.Uncoordinated = c.Uncoordinated
		}
	}
	return e
}

// pods replaces candidate names with Pod names.
func (e Election) pods() Election {
	e.apart = e.Holder != "" && !strings.HasSuffix(e.Holder, "."+e.Name)
	e.Holder, e.Preferred, e.Former = Pod(e.Holder, e.Name), Pod(e.Preferred, e.Name), Pod(e.Former, e.Name)
	if e.Request != nil {
		r := *e.Request
		r.Identity = Pod(r.Identity, e.Name)
		e.Request = &r
	}
	return e
}

// chosen returns the outcome of a coordinated election with a holder.
func (e Election) chosen(candidates []Candidate, d k8sleaderelection.DefaultRevision) Outcome {
	by := "the coordinator uses " + e.Strategy
	switch {
	case e.Hold != nil:
		return e.stays(fmt.Sprintf("hold by %s (%s)", e.Hold.Requester, e.Hold.Reason))
	case e.Strategy != defaultRevision:
		return Outcome{Move: Unknown, Gap: "its drain, and one write", Why: by + ", whose inputs are not known here"}
	case d.Revision == "" || e.Revision == d.Revision && !e.Remote:
		return e.stays(by + ", and no revision is preferred to the leader's")
	}
	next := ready(candidates, func(c Candidate) bool {
		return c.Identity != e.Holder && k8sleaderelection.Outranks(c.Key, e.Key, d)
	})
	if next == nil && e.Known() {
		return e.stays(by + ", and there is no fit candidate of " + d.Revision)
	} else if next == nil {
		next = &Candidate{Key: d.Revision}
	}
	o := Outcome{Move: HandOver, Leader: next.Identity, Revision: next.Revision(), Warm: next.Warm, Gap: "its drain, and one write", Why: by}
	if !e.HandsOver {
		o.Move, o.Gap = Expire, fmt.Sprintf("up to %d s, until its lease is over", e.LeaseSeconds)
		o.Why += "; the holder accepts no handover requests; it is another elector or settling"
	}
	if next.Identity == "" {
		o.Move, o.Why = Unknown, by+"; candidates of "+d.Revision+" are not known"
	}
	return o.amongEquals(candidates)
}

// byStrategy adapts the outcome of a free lock to a coordinated election.
func (e Election) byStrategy(o Outcome) Outcome {
	if !e.Coordinated() || o.Move != Acquire {
		return o
	}
	o.Gap, o.Why = "until the coordinator names a candidate", "the coordinator names a candidate by "+e.Strategy
	if e.Strategy != defaultRevision {
		o.Leader, o.Revision, o.Warm, o.Candidates = "", "", false, 0
	}
	return o.amongEquals(e.Candidates)
}

// amongEquals clears the leader if another candidate may be preferred. Members do not contain the priorities.
func (o Outcome) amongEquals(candidates []Candidate) Outcome {
	var leader Candidate
	for _, c := range candidates {
		if c.Identity == o.Leader {
			leader = c
		}
	}
	o.Candidates = 0
	for _, c := range candidates {
		if c.able() && c.Key == leader.Key {
			o.Candidates++
		}
	}
	if o.Candidates > 1 {
		o.Leader = ""
	}
	return o
}

// choice is Reason for a coordinated election.
func (e Election) choice() string {
	switch {
	case e.State == Free || e.State == Empty:
		return fmt.Sprintf("The lock is free. The coordinator names a candidate by %s.", e.Strategy)
	case e.Preferred != "" && e.Preferred != e.Holder:
		return fmt.Sprintf("The coordinator uses %s and requested a change to %s. The leader drains and hands over.", e.Strategy, e.Preferred)
	}
	return fmt.Sprintf("The coordinator chose the holder by %s.", e.Strategy)
}
