package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

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
	// Acquire means that a candidate acquires the free lock.
	Acquire Move = "acquire"
	// Unknown means that a candidate without a member Lease may exist.
	Unknown Move = "unknown"
)

// Outcome is a prediction for an election.
type Outcome struct {
	Move Move `json:"move"`
	// Leader is the next leader. It is empty if it is unknown, none, or one of several Candidates.
	Leader string `json:"leader,omitempty"`
	// Revision is the revision of the next leader. It is empty if the Candidates have several.
	Revision string `json:"revision,omitempty"`
	// Candidates is the number of candidates that can be the next leader. The first to write leads.
	Candidates int `json:"candidates,omitempty"`
	// Warm is true if its caches are prepared.
	Warm bool `json:"warm"`
	// Gap describes how long no candidate leads. Why is the reason for the outcome.
	Gap string `json:"gap"`
	Why string `json:"why"`
}

// If predicts the outcome if d were the default revision.
func (e Election) If(d k8sleaderelection.DefaultRevision) Outcome {
	candidates := inOrder(e.Candidates, e.byRank(), d)
	switch {
	case !e.Led():
		return e.byStrategy(e.take(candidates, d, e.Known()))
	case e.Coordinated():
		return e.chosen(candidates, d)
	}
	other := func(c Candidate) bool { return c.Identity != e.Holder }
	if next := ready(candidates, other); next != nil && e.Unfit && e.HandsOver {
		o := e.moved(next, candidates, other)
		o.Why = "the leader is unfit and hands over to a fit candidate"
		return o
	}
	switch {
	case e.Key == "":
		return e.stays("the candidates have no rank")
	case !e.Ranked:
		return e.stays("each revision has a lock of its own")
	}
	higher := func(c Candidate) bool { return other(c) && k8sleaderelection.Outranks(c.Key, e.Key, d) }
	next := ready(candidates, higher)
	switch {
	case !d.Synced:
		return e.stays("the default revision is unknown, so the rank is unknown")
	case e.Hold != nil && (next != nil || e.Revision != d.Revision):
		return e.stays(fmt.Sprintf("hold by %s (%s)", e.Hold.Requester, e.Hold.Reason))
	case next != nil:
		return e.moved(next, candidates, higher)
	case d.Revision == "":
		return e.stays("no default revision, so no candidate outranks the holder")
	case e.Revision == d.Revision:
		return e.stays("the holder has revision " + d.Revision)
	case e.Known():
		return e.stays("no fit candidate of " + d.Revision)
	}
	o := e.moved(&Candidate{Key: d.Revision}, nil, nil)
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

// to sets the next leader. If other candidates are as ready as next, the first of them to write leads.
func (o Outcome) to(next *Candidate, candidates []Candidate, same func(Candidate) bool) Outcome {
	o.Leader = next.Identity
	o.Revision = next.Revision()
	o.Warm = next.Warm
	for _, c := range candidates {
		if c.able() != next.able() || c.Warm != next.Warm || c.Late || !same(c) {
			continue
		}
		if o.Candidates++; o.Candidates > 1 {
			o.Leader = ""
		}
		if c.Revision() != next.Revision() {
			o.Revision = ""
		}
	}
	return o
}

// moved returns the outcome if next, or another of the candidates, replaces the holder.
func (e Election) moved(next *Candidate, candidates []Candidate, may func(Candidate) bool) Outcome {
	o := Outcome{Move: HandOver, Gap: "drain of the leader and one write", Why: "the leader accepts handover requests"}.to(next, candidates, may)
	if !e.HandsOver {
		o.Move, o.Gap = Preempt, fmt.Sprintf("up to %d s, until the lease expires", e.LeaseSeconds)
		o.Why = "the holder accepts no handover requests; it is another elector or settling"
	}
	if !next.Warm {
		o.Why += "; " + cmp.Or(o.Leader, "a candidate") + " requests it once it is warm"
	}
	return o
}

// take returns the outcome if a candidate acquires the lock.
func (e Election) take(candidates []Candidate, d k8sleaderelection.DefaultRevision, known bool) Outcome {
	o := Outcome{Move: Acquire, Gap: "one watch event and one write", Why: "the lock is free"}
	switch e.State {
	case Unreadable:
		o.Gap, o.Why = "a lease duration since the record became unreadable", "an unreadable record counts as held for a lease duration"
	case Expired:
		o.Gap, o.Why = "one write", "the lease expired"
	case Unread:
		return Outcome{Move: Unknown, Gap: "unknown", Why: "the lock cannot be read"}
	case Leads, Holds, Nominated, Doubtful, Free, Empty:
	}
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return c.Identity == e.Holder }) // its lease expired
	next := ready(candidates, func(Candidate) bool { return true })
	if next == nil { // an unfit candidate acquires a lock without competition
		if i := slices.IndexFunc(candidates, func(c Candidate) bool { return !c.Late }); i >= 0 {
			next = &candidates[i]
		}
	}
	if next != nil {
		if next.BackingOff {
			o.Gap, o.Why = "until the cool-down ends, at most a lease", "the only candidate cools down after a step-down"
		}
		return o.to(next, candidates, func(c Candidate) bool { return !e.byRank() || !d.Synced || compareRank(c, *next, d) == 0 })
	}
	o.Move, o.Why = Unknown, "candidates are not known"
	if known {
		o.Move, o.Gap, o.Why = Stays, "until a candidate starts", "no candidates"
	}
	return o
}

// IfDied predicts the outcome if the holder were killed and d is the default revision.
func (e Election) IfDied(d k8sleaderelection.DefaultRevision) Outcome {
	if !e.Led() {
		return e.If(d)
	}
	gone := e
	gone.State, gone.Candidates = Free, nil
	why := "a killed holder does not release the lock"
	for _, c := range inOrder(e.Candidates, e.byRank(), d) {
		switch {
		case c.Identity != e.Holder:
			gone.Candidates = append(gone.Candidates, c)
		case e.State == Leads && c.Witness != "" && c.Witness != NoWitness && c.Witness != UnreachableWitness:
			why = "if only its process ends, its witness (" + c.Witness + ") releases the lock earlier"
		}
	}
	o := gone.byStrategy(gone.take(gone.Candidates, d, e.Known()))
	if o.Move == Stays {
		return o
	}
	o.Gap = fmt.Sprintf("up to %d s, until the lease expires", e.LeaseSeconds)
	if o.Move == Acquire {
		o.Move = Expire
		if e.Coordinated() {
			o.Why = why + "; then " + o.Why
			return o
		}
		o.Why = why
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
	case e.State == Expired:
		return fmt.Sprintf("%s did not renew the lock for %s, so its lease expired. If a candidate is ready, it acquires the lock.", e.Holder, duration.HumanDuration(e.Idle))
	case e.State == Free:
		return "The last holder released the lock. If a candidate is ready, it acquires the lock."
	case e.Hold != nil:
		return fmt.Sprintf("%s set a hold (%s). No candidate can acquire the lock by rank.", e.Hold.Requester, e.Hold.Reason)
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
