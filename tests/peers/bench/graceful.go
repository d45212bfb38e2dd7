package main

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// graceful measures the time from the return of a stopping leader's run function to the start of the successor's.
// Elections of all setups run concurrently and stop at random times.
func (l *lab) graceful(s *Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "graceful")
	if err != nil {
		return err
	}
	var (
		all       multierror.Group
		elections []*succession
	)
	for i, setup := range setups {
		row := newRow(s, setup.series(""))
		for n := range l.sideBySide(setup.timing) {
			e := &succession{setup: setup, namespace: namespace, name: fmt.Sprintf("e%d-%d", i, n), row: row}
			elections = append(elections, e)
			all.Go(func() error { return l.begin(e) })
		}
	}
	_ = all.Wait() // until then hundreds of processes connect
	until := time.Now().Add(choose(l, 35*time.Second, 220*time.Second))
	for _, e := range elections {
		all.Go(func() error {
			return l.succeed(e, func(int) bool { return time.Now().Before(until) }, func(leader *electors.Member) time.Time {
				leader.Stop()
				return leader.Last().To
			})
		})
	}
	limit := newRow(s, Series{Library: Limit})
	for i := range inFlight {
		all.Go(func() error { return l.limit(namespace, fmt.Sprintf("limit-%d", i), until, limit) })
	}
	return all.Wait().ErrorOrNil()
}

// sideBySide returns the number of concurrent elections of a setup. The API server must have idle time, or the electors
// would wait for each other. Rounds at 15/10/2 take a quarter of the time.
func (l *lab) sideBySide(t electors.Timing) int {
	if t == electors.KubernetesTiming {
		return choose(l, 6, 16)
	}
	return choose(l, 15, 40)
}
