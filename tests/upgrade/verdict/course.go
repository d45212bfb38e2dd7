package verdict

import (
	"fmt"
	"time"

	"incumbent.dev/incumbent/internal/audit"
)

// Course is the expected change from one term to the next. It is checked by causes, never by duration: a
// graceful stop whose release was lost also ends with one leader, but only after the lease.
type Course struct {
	// Ended is how the former term ended; "" if there was none.
	Ended audit.Change
	// Began is how the new term began.
	Began audit.Change
	// Leader limits who leads then.
	Leader Leader
	// Waited requires that a whole lease passed between the terms.
	Waited bool
	// Or is an alternative.
	Or *Course
}

// Leader limits which Pod leads after an act.
type Leader int

// The limits.
const (
	AnyPod Leader = iota
	SamePod
	AnotherPod
)

// Timing is the timing of the election.
type Timing struct{ Lease, Retry time.Duration }

// Check compares the terms of a lock with the course. The first `before` terms began before the act; the last term
// must be one of a revision. A candidate of a lower rank may be faster, if it hands over then.
func (c Course) Check(terms []audit.Term, before int, revision string, timing Timing) error {
	if len(terms) <= before {
		return fmt.Errorf("no new term began")
	}
	var former audit.Term
	if before > 0 {
		former = terms[before-1]
	}
	if err := c.check(former, terms[before], timing); err != nil {
		if c.Or != nil {
			return c.Or.Check(terms, before, revision, timing)
		}
		return err
	}
	for i := before + 1; i < len(terms); i++ {
		if err := detour.check(terms[i-1], terms[i], timing); err != nil {
			return err
		}
	}
	switch last := terms[len(terms)-1]; {
	case last.Ended != "":
		return fmt.Errorf("the term of %s has been %s", last.Pod, last.Ended)
	case last.Key != revision:
		return fmt.Errorf("%s of revision %s leads, want a leader of %s", last.Pod, last.Key, revision)
	}
	return nil
}

var detour = Course{Ended: audit.HandedOver, Began: audit.Nominated, Leader: AnotherPod}

func (c Course) check(former, next audit.Term, timing Timing) error {
	switch {
	case former.Ended != c.Ended:
		return fmt.Errorf("the term of %s was %q, want %q", former.Pod, former.Ended, c.Ended)
	case next.Began != c.Began:
		return fmt.Errorf("the term of %s began %q, want %q", next.Pod, next.Began, c.Began)
	case c.Leader == SamePod && next.Pod != former.Pod:
		return fmt.Errorf("%s leads, want %s again", next.Pod, former.Pod)
	case c.Leader == AnotherPod && next.Pod == former.Pod:
		return fmt.Errorf("%s leads again, want another Pod", next.Pod)
	}
	since := former.To
	if former.Ended == audit.Corrupted {
		since = former.End.Answered
	}
	// The retry period allows for timestamps of responses.
	if waited := next.Start.Answered.Sub(since); c.Waited && waited < timing.Lease-timing.Retry {
		return fmt.Errorf("%s acquired the lock %v after the last renewal, before the lease of %v expired", next.Pod, round(waited), timing.Lease)
	}
	return nil
}
