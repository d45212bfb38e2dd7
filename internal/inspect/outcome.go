package inspect

import (
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Move is how an election gets its next leader.
type Move string

const (
	// Stays means that the holder stays.
	Stays Move = "stays"
	// HandOver means that the leader drains and writes its successor into the lock.
	HandOver Move = "handover"
	// Preempt means that a candidate overwrites the holder, which accepts no requests, and then settles.
	Preempt Move = "preempt"
	// Expire means that no candidate leads until the lease expires.
	Expire Move = "expire"
	// Take means that a candidate acquires the free lock.
	Take Move = "take"
	// Unknown means that a candidate without a member Lease may exist.
	Unknown Move = "unknown"
)

// Outcome is a prediction for an election.
type Outcome struct {
	Move Move `json:"move"`
	// Leader is the next leader. It is empty if it is unknown or none.
	Leader string `json:"leader,omitempty"`
	// Revision is the revision of the next leader.
	Revision string `json:"revision,omitempty"`
	// Warm is true if its caches are prepared.
	Warm bool `json:"warm"`
	// Gap describes how long no candidate leads. Why is the reason for the outcome.
	Gap string `json:"gap"`
	Why string `json:"why"`
}

// If predicts the outcome if d were the default revision. known is whether e.Candidates contains all candidates (Election.Known).
func (e Election) If(d k8sleaderelection.DefaultRevision, known bool) Outcome {
	candidates := inOrder(e.Candidates, e.byRank(), d)
	switch {
	case !e.Led():
		return e.byStrategy(take(e, candidates, known))
	case e.Coordinated():
		return e.chosen(candidates, d, known)
	}
	if next := ready(candidates, func(c Candidate) bool { return c.Identity != e.Holder }); next != nil && e.Unfit && e.HandsOver {
		o := e.moved(next)
		o.Why = "the leader is unfit and hands over to a fit candidate"
		return o
	}
	switch {
	case e.Key == "":
		return e.stays("the candidates have no rank")
	case !e.Ranked:
		return e.stays("each revision has a lock of its own")
	}
	next := ready(candidates, func(c Candidate) bool {
		return c.Identity != e.Holder && k8sleaderelection.Outranks(c.Key, e.Key, d)
	})
	switch {
	case e.Hold != nil && (next != nil || e.Revision != d.Revision):
		return e.stays(fmt.Sprintf("hold by %s (%s)", e.Hold.Requester, e.Hold.Reason))
	case next != nil:
		return e.moved(next)
	case d.Revision == "":
		return e.stays("no default revision, so no candidate outranks the holder")
	case e.Revision == d.Revision:
		return e.stays("the holder has revision " + d.Revision)
	case known:
		return e.stays("no fit candidate of " + d.Revision)
	}
	o := e.moved(&Candidate{Key: d.Revision})
	o.Move, o.Why = Unknown, "candidates of "+d.Revision+" are not known"
	return o
}

// stays returns the outcome if the holder stays.
func (e Election) stays(why string) Outcome {
	return Outcome{Move: Stays, Leader: e.Holder, Revision: e.Revision, Warm: true, Gap: "none", Why: why}
}

// byRank reports whether the election is ranked. For a free lock the keys of the candidates decide.
func (e Election) byRank() bool {
	return e.Ranked || e.Holder == "" && slices.ContainsFunc(e.Candidates, func(c Candidate) bool {
		return c.Key != "" && !strings.HasSuffix(e.Name, "-"+c.Revision())
	})
}

// ready returns the first candidate that is able and warm, or else the first that is able.
func ready(candidates []Candidate, of func(Candidate) bool) (next *Candidate) {
	for i, c := range candidates {
		if of(c) && c.able() && (next == nil || c.Warm && !next.Warm) {
			next = &candidates[i]
		}
	}
	return next
}

// moved returns the outcome if next replaces the holder.
func (e Election) moved(next *Candidate) Outcome {
	o := Outcome{
		Move: HandOver, Leader: next.Identity, Revision: next.Revision(), Warm: next.Warm,
		Gap: "drain of the leader and one write", Why: "the leader accepts handover requests",
	}
	if !e.HandsOver {
		o.Move, o.Gap = Preempt, fmt.Sprintf("up to %d s, until the lease expires", e.LeaseSeconds)
		o.Why = "the holder accepts no handover requests; it is another elector or settling"
	}
	if !next.Warm {
		o.Why += "; " + next.Identity + " requests it once it is warm"
	}
	return o
}

func take(e Election, candidates []Candidate, known bool) Outcome {
	o := Outcome{Move: Take, Gap: "one watch event and one write", Why: "the lock is free"}
	if e.State == Unreadable {
		o.Gap, o.Why = "a lease duration since the record became unreadable", "an unreadable record counts as held for a lease duration"
	}
	next := ready(candidates, func(Candidate) bool { return true })
	if next == nil { // an unfit candidate acquires a lock without competition
		if i := slices.IndexFunc(candidates, func(c Candidate) bool { return !c.Late }); i >= 0 {
			next = &candidates[i]
		}
	}
	if next != nil {
		o.Leader, o.Revision, o.Warm = next.Identity, next.Revision(), next.Warm
	}
	if o.Leader == "" {
		o.Move, o.Why = Unknown, "candidates are not known"
		if known {
			o.Move, o.Gap, o.Why = Stays, "until a candidate starts", "no candidates"
		}
	}
	return o
}

// IfDied predicts the outcome if the holder were killed. d and known are as for If.
func (e Election) IfDied(d k8sleaderelection.DefaultRevision, known bool) Outcome {
	if !e.Led() {
		return e.If(d, known)
	}
	gone := e
	gone.State, gone.Candidates = Free, nil
	for _, c := range inOrder(e.Candidates, e.byRank(), d) {
		if c.Identity != e.Holder {
			gone.Candidates = append(gone.Candidates, c)
		}
	}
	o := gone.byStrategy(take(gone, gone.Candidates, known))
	if o.Move == Stays {
		return o
	}
	o.Gap = fmt.Sprintf("up to %d s, until the lease expires", e.LeaseSeconds)
	if o.Move == Take {
		o.Move = Expire
		if e.Coordinated() {
			o.Why = "a killed holder does not release the lock; then " + o.Why
			return o
		}
		o.Why = "a killed holder does not release the lock"
	}
	return o
}

// Reason describes in a sentence why the holder leads, or why no candidate leads.
func (e Election) Reason(d k8sleaderelection.DefaultRevision) string {
	switch {
	case e.State == Unreadable:
		return "The record is unreadable. Candidates replace it after a lease duration."
	case e.Coordinated() && e.Hold == nil:
		return e.choice()
	case e.State == Empty:
		return "The lock has never been held."
	case e.State == Free:
		return "The last holder released the lock. The best candidate acquires it."
	case e.Hold != nil:
		return fmt.Sprintf("%s set a hold (%s). No candidate can take the lock by rank.", e.Hold.Requester, e.Hold.Reason)
	case !e.Ranked && e.Key != "":
		return fmt.Sprintf("Each revision has its own lock. This lock belongs to %s. The first candidate to acquire it leads until it stops.", e.Revision)
	case !e.Ranked:
		return "The candidates have no rank. The first candidate to acquire the lock leads until it stops."
	case !d.Synced:
		return "The default revision is unknown, because reading the webhook istio-revision-tag-default is forbidden. The rank is unknown too."
	case d.Revision == "":
		return "There is no default revision, so all revisions have the same rank. The first candidate to acquire the lock leads until it stops."
	case e.Revision != d.Revision:
		return fmt.Sprintf("The default revision is %s, and the holder has revision %s. A candidate of %s would outrank it.", d.Revision, e.Revision, d.Revision)
	case e.Remote:
		return fmt.Sprintf("The holder has the default revision %s but is remote. A local candidate of %s would outrank it.", d.Revision, d.Revision)
	}
	return fmt.Sprintf("The holder has the default revision %s. No candidate outranks it.", d.Revision)
}
