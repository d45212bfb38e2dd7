package main

import (
	"fmt"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// scale measures the cost of an election in a process with many elections. Two processes have a candidate in each election;
// the first leads all. The cost of the process itself is subtracted.
func (l *lab) scale(s *Scenario) error {
	var err error
	s.Sizes, err = concurrently(electors.Libraries, func(library electors.Library) ([]Size, error) {
		return l.many(library, choose(l, 100, 1000))
	})
	return err
}

// many measures a leading and a following process of one library in its own namespace, because a watch may include all
// locks of a namespace.
func (l *lab) many(library electors.Library, elections int) ([]Size, error) {
	namespace, err := l.cluster.NewNamespace(l.ctx, "scale")
	if err != nil {
		return nil, err
	}
	children, err := l.newChildren(library, 2)
	if err != nil {
		return nil, err
	}
	defer end(children)
	var empty []Sample
	s := setup{library, electors.IstioTiming, electors.Lease}
	for i, c := range children {
		spec := s.spec(namespace, "e", fmt.Sprintf("replica-%d", i))
		// The first connection belongs to the process.
		warm := spec
		warm.Election += "-warm"
		if err := c.enter(Candidates{Spec: warm, Elections: 1}); err != nil {
			return nil, err
		}
		if err := l.pause(time.Second); err != nil {
			return nil, err
		}
		before, err := c.sample(true)
		if err != nil {
			return nil, err
		}
		empty = append(empty, before)
		// Five milliseconds each: two cores create about two hundred locks per second.
		over := max(s.timing.Retry, time.Duration(elections)*5*time.Millisecond)
		if err := c.enter(Candidates{Spec: spec, Elections: elections, Over: over}); err != nil {
			return nil, err
		}
		if _, err := l.leading(children[0], elections+1); err != nil {
			return nil, err
		}
	}
	return l.settled(library, elections, children, empty)
}

// settled measures after every follower has had time to poll.
func (l *lab) settled(library electors.Library, elections int, children []*child, empty []Sample) ([]Size, error) {
	if err := l.pause(choose(l, 10*time.Second, 20*time.Second)); err != nil {
		return nil, err
	}
	before, after, err := l.during(choose(l, 20*time.Second, 45*time.Second), children)
	if err != nil {
		return nil, err
	}
	var sizes []Size
	for i, c := range children {
		full, err := c.sample(true)
		if err != nil {
			return nil, err
		}
		if lost := after[i].Spans - before[i].Spans; lost > 0 {
			return nil, fmt.Errorf("replica %d of %v began %d terms during the measurement", i, library, lost)
		}
		n, took := float64(elections), after[i].At.Sub(before[i].At)
		size := Size{
			Library: library.String(), Timing: electors.IstioTiming.String(), Elections: elections,
			Role:       []string{Leader, Follower}[i],
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
