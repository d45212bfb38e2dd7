package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// cuts are the parts of the scenario crash.
var cuts = []struct {
	part string
	cut  func(*electors.Member)
}{
	{Refused, (*electors.Member).Cut},
	{Swallowed, func(leader *electors.Member) {
		leader.Relay.All(relay.Stalled)
	}},
}

// crash measures the time from cutting off a leader to the start of the successor's run function, and the overlap of
// both. The cut-off process keeps running, as in a partition.
func (l *lab) crash(s *Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "crash")
	if err != nil {
		return err
	}
	elections, rounds := choose(l, 10, 60), choose(l, 1, 4)
	var all multierror.Group
	for part, c := range cuts {
		cut := func(leader *electors.Member) time.Time {
			now := time.Now()
			c.cut(leader)
			return now
		}
		for i, setup := range setups {
			row := newRow(s, setup.series(c.part))
			for n := range elections {
				name := fmt.Sprintf("e%d-%d-%d", part, i, n)
				e := &succession{setup: setup, namespace: namespace, name: name, relayed: true, row: row}
				all.Go(func() error {
					// Spread the start: thousands of connections are created.
					if err := l.pause(rand.N(choose(l, 3*time.Second, 10*time.Second))); err != nil {
						return err
					}
					if err := l.begin(e); err != nil {
						return err
					}
					return l.succeed(e, func(round int) bool { return round <= rounds }, cut)
				})
			}
		}
	}
	return all.Wait().ErrorOrNil()
}
