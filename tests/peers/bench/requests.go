package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
)

const (
	replicas       = 3
	quietElections = 8
)

// requests counts the requests of idle elections and measures the CPU time of their processes. Each setup has three
// processes with a candidate in each of eight elections. The first process leads all of them.
func (l *lab) requests(s *Scenario) error {
	var err error
	s.Loads, err = concurrently(setups, l.quietly)
	return err
}

// concurrently returns the results of all inputs in order.
func concurrently[In, Out any](inputs []In, measure func(In) ([]Out, error)) ([]Out, error) {
	var all multierror.Group
	results := make([][]Out, len(inputs))
	for i, input := range inputs {
		all.Go(func() (err error) {
			results[i], err = measure(input)
			return err
		})
	}
	err := all.Wait().ErrorOrNil()
	return slices.Concat(results...), err
}

// quietly measures the processes of one setup in its own namespace, because a watch may include all locks of a
// namespace.
func (l *lab) quietly(s setup) ([]Load, error) {
	namespace, err := l.cluster.NewNamespace(l.ctx, "requests")
	if err != nil {
		return nil, err
	}
	children, err := l.newChildren(s.library, replicas)
	if err != nil {
		return nil, err
	}
	defer end(children)
	for i, c := range children {
		spec := s.spec(namespace, "e", fmt.Sprintf("replica-%d", i))
		over := s.timing.Retry // spreads the renewals over a period
		if err := c.enter(Candidates{Spec: spec, Elections: quietElections, Over: over}); err != nil {
			return nil, err
		}
		if _, err := l.leading(children[0], quietElections); err != nil {
			return nil, err
		}
	}
	if err := l.pause(2 * s.timing.Retry); err != nil {
		return nil, err
	}
	before, after, err := l.during(choose(l, 40*time.Second, 300*time.Second), children)
	if err != nil {
		return nil, err
	}
	var loads []Load
	for i := range children {
		loads = append(loads, s.load(i, before[i], after[i]))
		if want := map[bool]int{true: quietElections}[i == 0]; after[i].Live != want || after[i].Spans != want {
			return nil, fmt.Errorf("replica %d of %v leads %d elections in term %d, want %d", i, s.library, after[i].Live, after[i].Spans, want)
		}
	}
	return loads, nil
}

func (s setup) load(replica int, before, after Sample) Load {
	took := after.At.Sub(before.At)
	load := Load{
		Library: s.library.String(), Timing: s.timing.String(), Role: Follower, Elections: quietElections,
		CPU: (after.CPU - before.CPU) / took.Hours(), PerMinute: map[string]float64{},
	}
	if replica == 0 {
		load.Role = Leader
	}
	for what, n := range after.Counts {
		if more := n - before.Counts[what]; more > 0 {
			load.PerMinute[what] = float64(more) / took.Minutes() / quietElections
		}
	}
	return load
}

// leading waits until a child leads that many elections.
func (l *lab) leading(c *child, elections int) (Sample, error) {
	deadline := time.Now().Add(bound)
	for {
		s, err := c.sample(false)
		if err != nil || s.Live == elections {
			return s, err
		}
		if time.Now().After(deadline) {
			return s, fmt.Errorf("process leads %d of %d elections after %v", s.Live, elections, bound)
		}
		if err := l.pause(200 * time.Millisecond); err != nil {
			return s, err
		}
	}
}

// during returns samples of the processes before and after a period.
func (l *lab) during(period time.Duration, children []*child) (before, after []Sample, err error) {
	if before, err = samples(children); err != nil {
		return nil, nil, err
	}
	if err := l.pause(period); err != nil {
		return nil, nil, err
	}
	after, err = samples(children)
	return before, after, err
}

func samples(children []*child) (all []Sample, _ error) {
	for _, c := range children {
		s, err := c.sample(false)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
