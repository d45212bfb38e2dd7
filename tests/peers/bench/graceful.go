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

// relay is an election in which candidates lead one after the other.
type relay struct {
	setup
	namespace, name string
	row             *row
	holder          *electors.Member
}

// graceful measures the time from the return of a stopping leader's run function to the start of the successor's.
// Elections of all setups run concurrently and stop at random times.
func (l *lab) graceful(s *report.Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "graceful")
	if err != nil {
		return err
	}
	var (
		r      rows
		all    sync.WaitGroup
		relays []*relay
	)
	for _, setup := range setups {
		row := r.add(setup.series(""))
		for i := range l.sideBySide(setup.timing) {
			e := &relay{setup: setup, namespace: namespace, name: fmt.Sprintf("e%d-%d", len(r.all), i), row: row}
			relays = append(relays, e)
			all.Go(func() { r.failed(l.begin(e)) })
		}
	}
	all.Wait() // until then hundreds of processes connect
	until := time.Now().Add(choose(l, 35*time.Second, 220*time.Second))
	for _, e := range relays {
		all.Go(func() { r.failed(l.handOn(e, until)) })
	}
	limit := r.add(report.Series{Library: report.Limit})
	for i := range inFlight {
		all.Go(func() { r.failed(l.limit(namespace, fmt.Sprintf("limit-%d", i), until, limit)) })
	}
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

// begin starts the first leader of an election.
func (l *lab) begin(e *relay) error {
	first, err := l.enter(e.setup, e.namespace, e.name, "replica-0")
	if err != nil {
		return err
	}
	if err := l.await(first.Candidate); err != nil {
		first.End()
		return err
	}
	e.holder = first
	return nil
}

// handOn runs one election: a follower joins, the leader stops, and so on.
func (l *lab) handOn(e *relay, until time.Time) error {
	holder := e.holder
	if holder == nil {
		return nil // begin has failed
	}
	defer func() { holder.End() }()
	for round := 1; time.Now().Before(until); round++ {
		next, err := l.enter(e.setup, e.namespace, e.name, fmt.Sprintf("replica-%d", round))
		if err != nil {
			return err
		}
		if err := l.phase(e.timing); err != nil {
			next.End()
			return err
		}
		asked := time.Now()
		holder.End()
		ctx, cancel := context.WithTimeout(l.ctx, bound)
		span, err := next.AwaitStart(ctx, asked)
		cancel()
		last := holder
		holder = next
		if err != nil {
			e.row.lost()
			return l.ctx.Err()
		}
		e.row.time(span.From.Sub(last.Last().To))
		e.row.overlap(electors.Overlap(last.Candidate, next.Candidate, asked, time.Now()))
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
