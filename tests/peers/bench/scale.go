package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// scale measures the cost of an election in a process with many elections. Two processes have a candidate in each election;
// the first leads all. The cost of the process itself is subtracted.
func (l *lab) scale(s *report.Scenario) error {
	var (
		all   sync.WaitGroup
		sizes = make([][]report.Size, len(electors.Libraries))
		errs  = make([]error, len(electors.Libraries))
	)
	for i, library := range electors.Libraries {
		all.Go(func() { sizes[i], errs[i] = l.many(library, choose(l, 100, 1000)) })
	}
	all.Wait()
	s.Sizes = slices.Concat(sizes...)
	return errors.Join(errs...)
}

// many measures a leading and a following process of one library in its own namespace, because a watch may include all
// locks of a namespace.
func (l *lab) many(library electors.Library, elections int) ([]report.Size, error) {
	namespace, err := l.cluster.NewNamespace(l.ctx, "scale")
	if err != nil {
		return nil, err
	}
	var (
		children []*child
		empty    []sample
	)
	defer func() {
		for _, c := range children {
			c.end()
		}
	}()
	timing := electors.IstioTiming
	for i := range 2 {
		c, err := l.newChild(library, l.cluster.Kubeconfig(), false)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		spec := electors.Spec{
			Namespace: namespace, Election: "e", Identity: fmt.Sprintf("replica-%d", i), Revision: stable, Lock: electors.Lease, Timing: timing,
		}
		// The first connection belongs to the process.
		warm := spec
		warm.Election += "-warm"
		if _, err := c.tell(order{Enter: &enter{Spec: warm, Elections: 1}}); err != nil {
			return nil, err
		}
		if err := l.pause(time.Second); err != nil {
			return nil, err
		}
		before, err := c.tell(order{Collect: true})
		if err != nil {
			return nil, err
		}
		empty = append(empty, before)
		// Five milliseconds each: two cores create about two hundred locks per second.
		over := max(timing.Retry, time.Duration(elections)*5*time.Millisecond)
		if _, err := c.tell(order{Enter: &enter{Spec: spec, Elections: elections, Over: over}}); err != nil {
			return nil, err
		}
		if i == 0 {
			if _, err := l.leading(c, elections+1); err != nil {
				return nil, err
			}
		}
	}
	return l.settled(library, elections, children, empty)
}

// settled measures after every follower has had time to poll.
func (l *lab) settled(library electors.Library, elections int, children []*child, empty []sample) ([]report.Size, error) {
	if err := l.pause(choose(l, 10*time.Second, 20*time.Second)); err != nil {
		return nil, err
	}
	before, after, err := l.during(choose(l, 20*time.Second, 45*time.Second), children)
	if err != nil {
		return nil, err
	}
	var sizes []report.Size
	for i, c := range children {
		full, err := c.tell(order{Collect: true})
		if err != nil {
			return nil, err
		}
		if lost := after[i].Spans - before[i].Spans; lost > 0 {
			return nil, fmt.Errorf("replica %d of %v began %d terms during the measurement", i, library, lost)
		}
		n, took := float64(elections), after[i].At.Sub(before[i].At)
		size := report.Size{
			Library: library.String(), Timing: electors.IstioTiming.String(), Elections: elections,
			Role:       []string{report.Leader, report.Follower}[i],
			HeapKiB:    less(full.Heap, empty[i].Heap) / 1024 / n,
			StackKiB:   less(full.Stack, empty[i].Stack) / 1024 / n,
			Goroutines: float64(full.Goroutines-empty[i].Goroutines) / n,
			PerSecond:  float64(sum(after[i].Counts)-sum(before[i].Counts)) / took.Seconds(),
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func less(a, b uint64) float64 { return float64(a) - float64(b) }

func sum(counts map[string]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}
