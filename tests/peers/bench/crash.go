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

// crash measures from the moment at which a leader is cut off to the start of its
// successor's run function, and for how long the cut-off one's is alive beside it. The process
// that is cut off lives on, so what overlaps is what a partition does; for who waits for
// a successor it is the same as a crash.
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

// cutOff plays one election: a leader, a follower that joins, a cut, and so on.
func (l *lab) cutOff(s setup, namespace, name string, mode wire.Mode, rounds int, row *row) error {
	// Not all at once: thousands of connections are made here.
	if err := l.pause(rand.N(choose(l, 3*time.Second, 10*time.Second))); err != nil {
		return err
	}
	leader, err := l.enter(s, namespace, name, "replica-0")
	if err != nil {
		return err
	}
	defer func() { leader.end() }()
	if err := l.await(leader.Candidate); err != nil {
		return err
	}
	for round := range rounds {
		next, err := l.enter(s, namespace, name, fmt.Sprintf("replica-%d", round+1))
		if err != nil {
			return err
		}
		if err := l.phase(s.timing); err != nil {
			next.end()
			return err
		}
		cut := time.Now()
		leader.process.Wire.Set(mode)
		if !l.followed(leader.Candidate, next.Candidate, cut, row) {
			row.lost()
			leader.process.Wire.Set(wire.Refused)
			next.end()
			return l.ctx.Err()
		}
		leader.process.Wire.Set(wire.Refused) // or an answer would be waited for
		leader.end()
		leader = next
	}
	return nil
}

// followed waits until the next one has started and the last one's function has
// ended, and notes both. It reports whether that was in time.
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
