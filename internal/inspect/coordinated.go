package inspect

import (
	"fmt"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// defaultRevision is the strategy whose choice can be told from what members say, as far as the revision goes.
const defaultRevision = "incumbent.dev/DefaultRevision"

// Pod is whose candidate an identity is. In a coordinated election a candidate is called "<pod>.<lock>"
// (coordination.CandidateName), in others as its Pod.
func Pod(identity, lock string) string { return strings.TrimSuffix(identity, "."+lock) }

// Identity returns the identity of a Pod's candidate in the lock.
func (e Election) Identity(pod string) string {
	if !e.Coordinated() || pod == "" {
		return pod
	}
	return pod + "." + e.Name
}

// Coordinated reports whether a coordinator chooses. A Lease keeps its strategy when nobody asks for one any more.
func (e Election) Coordinated() bool { return e.Strategy != "" && !e.apart }

// pods has the election name Pods where its lock names their candidates.
func (e Election) pods() Election {
	e.apart = e.Holder != "" && !strings.HasSuffix(e.Holder, "."+e.Name)
	e.Holder, e.Preferred, e.Former = Pod(e.Holder, e.Name), Pod(e.Preferred, e.Name), Pod(e.Former, e.Name)
	if e.Request != nil {
		to := *e.Request
		to.To = Pod(to.To, e.Name)
		e.Request = &to
	}
	return e
}

// chosen is the outcome where a coordinator chooses and there is a holder.
func (e Election) chosen(candidates []Candidate, d k8sleaderelection.DefaultRevision, known bool) Outcome {
	stays := func(why string) Outcome {
		return Outcome{Move: Stays, Leader: e.Holder, Revision: e.Revision, Warm: true, Gap: "none", Why: why}
	}
	by := "a coordinator chooses by " + e.Strategy
	switch {
	case e.Hold != nil:
		return stays(fmt.Sprintf("held there by %s (%s); after that a coordinator chooses again", e.Hold.Requester, e.Hold.Reason))
	case e.Strategy != defaultRevision:
		return Outcome{Move: Unknown, Gap: "its drain, and one write", Why: by + ", which looks at more than is known here"}
	case d.Revision == "" || e.Revision == d.Revision && !e.Remote:
		return stays(by + ", and nobody's revision goes before the leader's")
	}
	next := ready(candidates, func(c Candidate) bool {
		return c.Identity != e.Holder && k8sleaderelection.Outranks(c.Key, e.Key, d)
	})
	if next == nil && known {
		return stays(by + ", and nobody of " + d.Revision + " that is fit takes part")
	} else if next == nil {
		next = &Candidate{Key: d.Revision}
	}
	o := Outcome{Move: HandOver, Leader: next.Identity, Revision: next.Revision(), Warm: next.Warm, Gap: "its drain, and one write", Why: by}
	if !e.HandsOver {
		o.Move, o.Gap = Expire, fmt.Sprintf("up to %d s, until its lease is over", e.LeaseSeconds)
		o.Why += "; the holder does not say that it hands over: it is a peer, or settles"
	}
	if next.Identity == "" {
		o.Move, o.Why = Unknown, by+", if a candidate of "+d.Revision+" takes part; no member says so"
	}
	return o.amongEquals(candidates)
}

// byStrategy is the outcome of a lock that is free, or will be, in the words of a coordinated election.
func (e Election) byStrategy(o Outcome) Outcome {
	if !e.Coordinated() || o.Move != Take {
		return o
	}
	o.Gap, o.Why = "until a coordinator names one: its watch tells at once", "a coordinator names one by "+e.Strategy
	if e.Strategy != defaultRevision {
		o.Leader, o.Revision, o.Warm = "", "", false
	}
	return o.amongEquals(e.Candidates)
}

// amongEquals leaves the leader open where others are as good by what is known: of priorities and versions members say nothing that a
// strategy goes by.
func (o Outcome) amongEquals(candidates []Candidate) Outcome {
	var leader Candidate
	for _, c := range candidates {
		if c.Identity == o.Leader {
			leader = c
		}
	}
	for _, c := range candidates {
		if c.Identity != leader.Identity && c.able() && c.Key == leader.Key {
			o.Leader = ""
		}
	}
	return o
}

// choice says why a coordinated election's leader leads.
func (e Election) choice() string {
	switch {
	case e.State == Free || e.State == Empty:
		return fmt.Sprintf("Nobody holds it. A coordinator names the first by %s.", e.Strategy)
	case e.Preferred != "" && e.Preferred != e.Holder:
		return fmt.Sprintf("A coordinator chooses by %s, and prefers %s: the leader ends its work and hands over.", e.Strategy, e.Preferred)
	}
	return fmt.Sprintf("A coordinator chose it, by %s, and prefers nobody else.", e.Strategy)
}
