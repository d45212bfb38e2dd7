package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// passes is how many there are: unit tests, then those with a real API server.
func (r room) passes() int {
	for _, j := range r.judges {
		if j.second {
			return 2
		}
	}
	return 1
}

// pass tries what no earlier pass has killed.
func (o options) pass(ctx context.Context, p *planted, known *state, chosen []*mutant, pass int) error {
	var todo []*mutant
	for _, m := range chosen {
		if r, tried := known.Results[m.key()]; !tried && pass == 1 || tried && !r.killed() && r.Passes < pass && !o.own {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	var suites []*suite
	for _, s := range p.suites {
		if s.second == (pass == 2) && (!o.own || p.room.has(s.judge)) {
			suites = append(suites, s)
		}
	}
	workers := o.workers
	if pass == 2 {
		workers = 1 // an API server each
	}
	tests, err := p.measure(ctx, known, suites, workers)
	if err != nil {
		return err
	}
	var (
		mu     sync.Mutex
		done   int
		killed int
		shown  = time.Now()
	)
	fmt.Fprintf(o.out, "  pass %d: %d mutants, %d tests that take %v\n", pass, len(todo), len(tests), total(tests))
	return each(ctx, workers, todo, func(m *mutant) error {
		r, err := p.try(ctx, m, tests)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Outcome == outcomeUnreached && pass == 2 {
			r.Outcome = known.Results[m.key()].Outcome
		}
		if r.Passes = pass; o.own {
			r.Passes = 0 // not all of the tests have judged it
		}
		known.Results[m.key()] = r
		done++
		if r.killed() {
			killed++
		}
		if time.Since(shown) > 30*time.Second || done == len(todo) {
			shown = time.Now()
			fmt.Fprintf(o.out, "  pass %d: %d of %d tried, %d killed\n", pass, done, len(todo), killed)
			return known.write(o.work, p.room.name)
		}
		return nil
	})
}

func total(tests []*test) time.Duration {
	var sum time.Duration
	for _, t := range tests {
		sum += t.took
	}
	return sum.Round(100 * time.Millisecond)
}
