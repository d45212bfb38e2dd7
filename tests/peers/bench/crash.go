package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
	"incumbent.dev/incumbent/tests/peers/wire"
)

// crash measures the time from cutting off a leader to the start of the successor's run function, and the overlap of
// both. The cut-off process keeps running, as in a partition.
func (l *lab) crash(s *report.Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "crash")
	if err != nil {
		return err
	}
	elections, rounds := choose(l, 10, 60), choose(l, 1, 4)
	var (
		r   rows
		all sync.WaitGroup
	)
	for part, mode := range []wire.Mode{wire.Refused, wire.Swallowed} {
		for i, setup := range setups {
			row := r.add(setup.series(mode.String()))
			for e := range elections {
				name := fmt.Sprintf("e%d-%d-%d", part, i, e)
				all.Go(func() { r.failed(l.cutOff(setup, namespace, name, mode, rounds, row)) })
			}
		}
	}
	all.Wait()
	return r.into(s)
}

// cutOff runs one election: a leader, a follower that joins, a cut, and so on.
func (l *lab) cutOff(s setup, namespace, name string, mode wire.Mode, rounds int, row *row) error {
	// Spread the start: thousands of connections are created.
	if err := l.pause(rand.N(choose(l, 3*time.Second, 10*time.Second))); err != nil {
		return err
	}
	leader, err := l.enter(s, namespace, name, "replica-0")
	if err != nil {
		return err
	}
	defer func() { leader.End() }()
	if err := l.await(leader.Candidate); err != nil {
		return err
	}
	for round := range rounds {
		next, err := l.enter(s, namespace, name, fmt.Sprintf("replica-%d", round+1))
		if err != nil {
			return err
		}
		if err := l.phase(s.timing); err != nil {
			next.End()
			return err
		}
		cut := time.Now()
		leader.Process.Wire.Set(mode)
		if !l.followed(leader.Candidate, next.Candidate, cut, row) {
			row.lost()
			leader.Process.Wire.Set(wire.Refused)
			next.End()
			return l.ctx.Err()
		}
		leader.Process.Wire.Set(wire.Refused) // otherwise it would wait for a response
		leader.End()
		leader = next
	}
	return nil
}

// followed waits until next has started and last has stopped, and records both. It reports whether that was in time.
func (l *lab) followed(last, next *electors.Candidate, since time.Time, row *row) bool {
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	span, err := next.AwaitStart(ctx, since)
	if err != nil || last.Await(ctx, false) != nil {
		return false
	}
	row.time(span.From.Sub(since))
	row.overlap(electors.Overlap(last, next, since, time.Now()))
	return true
}
