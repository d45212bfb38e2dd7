package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/report"
)

const (
	replicas       = 3
	quietElections = 8
)

// requests counts the requests of idle elections and measures the CPU time of their processes. Each setup has three
// processes with a candidate in each of eight elections. The first process leads all of them.
func (l *lab) requests(s *report.Scenario) error {
	var (
		all   sync.WaitGroup
		loads = make([][]report.Load, len(setups))
		errs  = make([]error, len(setups))
	)
	for i, setup := range setups {
		all.Go(func() { loads[i], errs[i] = l.quietly(setup) })
	}
	all.Wait()
	s.Loads = slices.Concat(loads...)
	return errors.Join(errs...)
}

// quietly measures the processes of one setup in its own namespace, because a watch may include all locks of a
// namespace.
func (l *lab) quietly(s setup) ([]report.Load, error) {
	namespace, err := l.cluster.NewNamespace(l.ctx, "requests")
	if err != nil {
		return nil, err
	}
	var children []*child
	defer func() {
		for _, c := range children {
			c.end()
		}
	}()
	for i := range replicas {
		c, err := l.newChild(s.library, l.cluster.Kubeconfig(), false)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		spec := s.spec(namespace, "e", fmt.Sprintf("replica-%d", i))
		over := s.timing.Retry // spreads the renewals over a period
		if _, err := c.tell(order{Enter: &enter{Spec: spec, Elections: quietElections, Over: over}}); err != nil {
			return nil, err
		}
		if i == 0 {
			if _, err := l.leading(c, quietElections); err != nil {
				return nil, err
			}
		}
	}
	if err := l.pause(2 * s.timing.Retry); err != nil {
		return nil, err
	}
	before, after, err := l.during(choose(l, 40*time.Second, 300*time.Second), children)
	if err != nil {
		return nil, err
	}
	var loads []report.Load
	for i := range children {
		loads = append(loads, s.load(i, before[i], after[i]))
		if want := map[bool]int{true: quietElections}[i == 0]; after[i].Live != want || after[i].Spans != want {
			return nil, fmt.Errorf("replica %d of %v leads %d elections in term %d, want %d", i, s.library, after[i].Live, after[i].Spans, want)
		}
	}
	return loads, nil
}

func (s setup) load(replica int, before, after sample) report.Load {
	took := after.At.Sub(before.At)
	load := report.Load{
		Library: s.library.String(), Timing: s.timing.String(), Role: report.Follower, Elections: quietElections,
		CPU: (after.CPU - before.CPU) / took.Hours(), PerMinute: map[string]float64{},
	}
	if replica == 0 {
		load.Role = report.Leader
	}
	for what, n := range after.Counts {
		if more := n - before.Counts[what]; more > 0 {
			load.PerMinute[what] = float64(more) / took.Minutes() / quietElections
		}
	}
	return load
}

// leading waits until a child leads that many elections.
func (l *lab) leading(c *child, elections int) (sample, error) {
	deadline := time.Now().Add(bound)
	for {
		s, err := c.tell(order{})
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
func (l *lab) during(period time.Duration, children []*child) (before, after []sample, err error) {
	if before, err = samples(children); err != nil {
		return nil, nil, err
	}
	if err := l.pause(period); err != nil {
		return nil, nil, err
	}
	after, err = samples(children)
	return before, after, err
}

func samples(children []*child) ([]sample, error) {
	var all []sample
	for _, c := range children {
		s, err := c.tell(order{})
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
