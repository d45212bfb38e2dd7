package main

import (
	"context"
	"fmt"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// bound bounds a round.
const bound = 2 * time.Minute

// succession is an election in which candidates lead one after the other.
type succession struct {
	setup
	namespace, name string
	relayed         bool
	row             *row
	leader          *electors.Member
}

// join starts a candidate.
func (l *lab) join(e *succession, n int) (*electors.Member, error) {
	return l.enter(e.relayed, e.library, e.spec(e.namespace, e.name, fmt.Sprint("replica-", n)))
}

// begin starts the first leader.
func (l *lab) begin(e *succession) error {
	first, err := l.join(e, 0)
	if err != nil {
		return err
	}
	if err := l.await(first.Candidate); err != nil {
		first.End()
		return err
	}
	e.leader = first
	return nil
}

// succeed runs rounds: a follower joins, end ends the term of the leader and returns the time from which the round counts, and the
// follower leads. It stops after a round that did not end in time.
func (l *lab) succeed(e *succession, more func(round int) bool, end func(*electors.Member) time.Time) error {
	if e.leader == nil {
		return nil // begin has failed
	}
	defer func() { e.leader.End() }()
	for n := 1; more(n); n++ {
		next, err := l.join(e, n)
		if err != nil {
			return err
		}
		last := e.leader
		e.leader = next
		inTime := false
		if l.phase(e.timing) == nil {
			since := time.Now()
			inTime = l.followed(last.Candidate, next.Candidate, since, end(last), e.row)
		}
		last.Cut() // otherwise it could wait for a response
		last.End()
		if !inTime {
			return l.ctx.Err()
		}
	}
	return nil
}

// followed waits until next has started after since and last has stopped, and records both. It reports whether that was in time.
// The recorded time begins at from.
func (l *lab) followed(last, next *electors.Candidate, since, from time.Time, row *row) bool {
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	span, err := next.AwaitStart(ctx, since)
	if err != nil || last.Await(ctx, false) != nil {
		row.lost()
		return false
	}
	row.time(span.From.Sub(from))
	row.overlap(electors.Overlap(last, next, since))
	return true
}

// await waits for the run function of a candidate.
func (l *lab) await(c *electors.Candidate) error {
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	if err := c.Await(ctx, true); err != nil {
		return fmt.Errorf("%s of %v did not lead %s: %w", c.Identity, c.Library, c.Election, err)
	}
	return nil
}
