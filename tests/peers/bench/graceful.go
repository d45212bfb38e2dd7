package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// bound bounds a round.
const bound = 2 * time.Minute

// graceful measures the time from the return of a stopping leader's run function to the start of the successor's.
// Elections of all setups run concurrently and stop at random times.
func (l *lab) graceful(s *report.Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "graceful")
	if err != nil {
		return err
	}
	var (
		r     rows
		all   sync.WaitGroup
		start = newGate(choose(l, 35*time.Second, 220*time.Second))
	)
	for _, setup := range setups {
		row := r.add(setup.series(""))
		for i := range l.sideBySide(setup.timing) {
			name := fmt.Sprintf("e%d-%d", len(r.all), i)
			ready := start.enter()
			all.Go(func() { r.failed(l.handOn(setup, namespace, name, start, ready, row)) })
		}
	}
	limit := r.add(report.Series{Library: report.Limit, Case: "two writes and an event"})
	for i := range inFlight {
		all.Go(func() {
			until, err := start.wait(l.ctx)
			if err == nil {
				err = l.limit(namespace, fmt.Sprintf("limit-%d", i), until, limit)
			}
			r.failed(err)
		})
	}
	start.open()
	all.Wait()
	return r.into(s)
}

// sideBySide returns the number of concurrent elections of a setup. The API server must have idle time, or the electors
// would wait for each other. Rounds at 15/10/2 take a quarter of the time.
func (l *lab) sideBySide(t electors.Timing) int {
	if t == electors.KubernetesTiming {
		return choose(l, 6, 16)
	}
	return choose(l, 15, 40)
}

// handOn runs one election: a leader, a follower that joins, a stop, and so on. The first stop follows after all
// elections have leaders. ready reports that this one has.
func (l *lab) handOn(s setup, namespace, name string, start *gate, ready func(), row *row) error {
	defer ready()
	holder, err := l.enter(s, namespace, name, "replica-0")
	if err != nil {
		return err
	}
	defer func() { holder.End() }()
	if err := l.await(holder.Candidate); err != nil {
		return err
	}
	ready()
	until, err := start.wait(l.ctx)
	if err != nil {
		return err
	}
	for round := 1; time.Now().Before(until); round++ {
		next, err := l.enter(s, namespace, name, fmt.Sprintf("replica-%d", round))
		if err != nil {
			return err
		}
		if err := l.phase(s.timing); err != nil {
			next.End()
			return err
		}
		asked := time.Now()
		holder.End()
		ctx, cancel := context.WithTimeout(l.ctx, bound)
		span, err := next.AwaitStart(ctx, asked)
		cancel()
		if err != nil {
			row.lost()
			next.End()
			return l.ctx.Err()
		}
		row.time(span.From.Sub(holder.Last().To))
		row.overlap(electors.Overlap(holder.Candidate, next.Candidate, asked, time.Now()))
		holder = next
	}
	return nil
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
