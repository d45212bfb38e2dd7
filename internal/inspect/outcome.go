package inspect

import (
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Move is the way in which an election gets its next leader.
type Move string

const (
	// Stays: the holder goes on.
	Stays Move = "stays"
	// HandOver: the leader ends its work and writes its successor in.
	HandOver Move = "handover"
	// Preempt: the lock of a holder that cannot be asked is overwritten; the new one waits until
	// the old one has stopped.
	Preempt Move = "preempt"
	// Expire: nobody acts until the lease has run out.
	Expire Move = "expire"
	// Take: the lock is free, and the first candidate to write it gets it.
	Take Move = "take"
	// Unknown: a candidate may be there that would lead, but no member says so.
	Unknown Move = "unknown"
)

// Outcome is a prediction for an election.
type Outcome struct {
	Move Move `json:"move"`
	// Leader is who would lead; empty: not known, or nobody.
	Leader string `json:"leader,omitempty"`
	// Revision is that leader's.
	Revision string `json:"revision,omitempty"`
	// Warm: its caches are prepared already.
	Warm bool `json:"warm"`
	// Gap says for how long nobody would act, and Why for what reason, in words.
	Gap string `json:"gap"`
	Why string `json:"why"`
}

// If predicts what would happen if d were the default revision. known says that all candidates are in e.Candidates, as
// where members publish Leases (Election.Known); otherwise there may be others.
func (e Election) If(d k8sleaderelection.DefaultRevision, known bool) Outcome {
	candidates := inOrder(e.Candidates, e.byRank(), d)
	stays := func(why string) Outcome {
		return Outcome{Move: Stays, Leader: e.Holder, Revision: e.Revision, Warm: true, Gap: "none", Why: why}
	}
	switch {
	case e.State == Kept:
		return stays("it is kept for the elections that came in its place")
	case !e.Led():
		return e.byStrategy(take(e, candidates, known))
	case e.Coordinated():
		return e.chosen(candidates, d, known)
	}
	if next := ready(candidates, func(c Candidate) bool { return c.Identity != e.Holder }); next != nil && e.Unfit && e.HandsOver {
		o := e.moved(next)
		o.Why = "the leader would rather not lead, and hands over to any candidate that is fit"
		return o
	}
	switch {
	case e.Key == "":
		return stays("its candidates have no rank")
	case !e.Ranked:
		return stays("each revision has a lock of its own")
	}
	next := ready(candidates, func(c Candidate) bool {
		return c.Identity != e.Holder && k8sleaderelection.Outranks(c.Key, e.Key, d)
	})
	switch {
	case e.Hold != nil && (next != nil || e.Revision != d.Revision):
		return stays(fmt.Sprintf("held there by %s (%s); after that rank counts again", e.Hold.Requester, e.Hold.Reason))
	case next != nil:
		return e.moved(next)
	case d.Revision == "":
		return stays("without a default revision none goes before another")
	case e.Revision == d.Revision:
		return stays("its leader is of " + d.Revision)
	case known:
		return stays("nobody of " + d.Revision + " that is fit takes part")
	}
	o := e.moved(&Candidate{Key: d.Revision})
	o.Move, o.Why = Unknown, "if a candidate of "+d.Revision+" takes part; no member says so"
	return o
}

// byRank reports whether rank counts. Of a lock that nobody holds the candidates' keys say so.
func (e Election) byRank() bool {
	return e.Ranked || e.Holder == "" && slices.ContainsFunc(e.Candidates, func(c Candidate) bool {
		return c.Key != "" && !strings.HasSuffix(e.Name, "-"+c.Revision())
	})
}

// ready is the first of those candidates that is able and warm, or else the first that is able.
func ready(candidates []Candidate, of func(Candidate) bool) (next *Candidate) {
	for i, c := range candidates {
		if of(c) && c.able() && (next == nil || c.Warm && !next.Warm) {
			next = &candidates[i]
		}
	}
	return next
}

// moved is the outcome where next goes before the holder.
func (e Election) moved(next *Candidate) Outcome {
	o := Outcome{
		Move: HandOver, Leader: next.Identity, Revision: next.Revision(), Warm: next.Warm,
		Gap: "its drain, and one write", Why: "the leader hands over when it is asked",
	}
	if !e.HandsOver {
		o.Move, o.Gap = Preempt, fmt.Sprintf("up to %d s, until its lease is over", e.LeaseSeconds)
		o.Why = "the holder cannot be asked to hand over: it is a peer, or settles"
	}
	if !next.Warm {
		o.Why += "; " + next.Identity + " is not warm yet, and asks once it is"
	}
	return o
}

func take(e Election, candidates []Candidate, known bool) Outcome {
	o := Outcome{Move: Take, Gap: "until a candidate sees it: its watch tells at once", Why: "the lock is free, and the first by rank goes first"}
	if e.State == Unreadable {
		o.Gap, o.Why = "a lease of the candidates, counted from when it became so", "an unreadable record counts as held for a lease"
	}
	next := ready(candidates, func(Candidate) bool { return true })
	if next == nil { // an unfit one takes a lock that no other takes
		if i := slices.IndexFunc(candidates, func(c Candidate) bool { return !c.Late }); i >= 0 {
			next = &candidates[i]
		}
	}
	if next != nil {
		o.Leader, o.Revision, o.Warm = next.Identity, next.Revision(), next.Warm
	}
	if o.Leader == "" {
		o.Move, o.Why = Unknown, "no member says that it takes part"
		if known {
			o.Move, o.Gap, o.Why = Stays, "until somebody takes part", "nobody takes part"
		}
	}
	return o
}

// IfDied predicts what would happen if the holder were killed now. d and known are as for If.
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
	o.Gap = fmt.Sprintf("up to %d s, until its lease is over", e.LeaseSeconds)
	if o.Move == Take {
		o.Move = Expire
		if e.Coordinated() {
			o.Why = "the lease of one that was killed has to run out, and " + o.Why
			return o
		}
		o.Why = "the lease of one that was killed has to run out, and the first by rank goes first; one that is stopped gives the lock up at once"
	}
	return o
}

// Reason says in a sentence why the leader leads, or nobody does.
func (e Election) Reason(d k8sleaderelection.DefaultRevision) string {
	switch {
	case e.State == Kept:
		return "It is held for no process: the elections that came in its place keep it from older versions (docs/migration.md)."
	case e.State == Unreadable:
		return "Its record cannot be read. That counts as held for a lease; then candidates replace it."
	case e.Coordinated() && e.Hold == nil:
		return e.choice()
	case e.State == Empty:
		return "Nobody has held it yet."
	case e.State == Free:
		return "The last holder gave it up. The first candidate that sees it takes it."
	case e.Hold != nil:
		return fmt.Sprintf("%s keeps it there (%s): rank does not count meanwhile.", e.Hold.Requester, e.Hold.Reason)
	case !e.Ranked && e.Key != "":
		return fmt.Sprintf("Each revision has a lock of its own, and this is %s's: whoever of it came first leads until it stops.", e.Revision)
	case !e.Ranked:
		return "Its candidates have no rank: who came first leads until it stops."
	case !d.Synced:
		return "The default revision is not known: the webhook istio-revision-tag-default may not be read. So who goes before whom cannot be told."
	case d.Revision == "":
		return "There is no default revision: no revision goes before another, and who came first leads until it stops."
	case e.Revision != d.Revision:
		return fmt.Sprintf("The default revision is %s, and the holder is of %s: a candidate of %s goes before it as soon as one takes part.", d.Revision, e.Revision, d.Revision)
	case e.Remote:
		return fmt.Sprintf("It is of the default revision %s, but outside this cluster: a local candidate of %s goes before it.", d.Revision, d.Revision)
	}
	return fmt.Sprintf("It is of the default revision %s: nobody goes before it.", d.Revision)
}
