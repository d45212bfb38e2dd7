package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// bound is what no round should last longer than.
const bound = 2 * time.Minute

// graceful measures from the return of a stopping leader's run function to the start of its
// successor's. Elections of all setups run side by side, and stop at random moments.
func (l *lab) graceful(s *report.Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "graceful")
	if err != nil {
		return err
	}
	elections := choose(l, 15, 60)
	until := time.Now().Add(choose(l, 35*time.Second, 150*time.Second))
	var (
		r   rows
		all sync.WaitGroup
	)
	for _, setup := range setups {
		row := r.add(setup.series(""))
		for i := range elections {
			name := fmt.Sprintf("e%d-%d", len(r.all), i)
			all.Go(func() { r.failed(l.handOn(setup, namespace, name, until, row)) })
		}
	}
	limit := r.add(report.Series{Library: report.Limit, Case: "two writes and an event"})
	for i := range inFlight {
		all.Go(func() { r.failed(l.limit(namespace, fmt.Sprintf("limit-%d", i), until, limit)) })
	}
	all.Wait()
	return r.into(s)
}

// handOn plays one election: a leader, a follower that joins, a stop, and so on.
func (l *lab) handOn(s setup, namespace, name string, until time.Time, row *row) error {
	holder, err := l.enter(s, namespace, name, "replica-0")
	if err != nil {
		return err
	}
	defer func() { holder.end() }()
	if err := l.await(holder.Candidate); err != nil {
		return err
	}
	for round := 1; time.Now().Before(until); round++ {
		next, err := l.enter(s, namespace, name, fmt.Sprintf("replica-%d", round))
		if err != nil {
			return err
		}
		if err := l.phase(s.timing); err != nil {
			next.end()
			return err
		}
		told := time.Now()
		holder.end()
		ctx, cancel := context.WithTimeout(l.ctx, bound)
		span, err := next.AwaitStart(ctx, told)
		cancel()
		if err != nil {
			row.lost()
			next.end()
			return l.ctx.Err()
		}
		row.time(span.From.Sub(holder.Last().To))
		row.overlap(electors.Overlap(holder.Candidate, next.Candidate, told, time.Now()))
		holder = next
	}
	return nil
}

// await waits for a candidate's run function.
func (l *lab) await(c *electors.Candidate) error {
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	if err := c.Await(ctx, true); err != nil {
		return fmt.Errorf("%s of %v did not lead %s: %w", c.Identity, c.Library, c.Election, err)
	}
	return nil
}
