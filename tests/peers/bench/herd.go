package main

import (
	"fmt"
	"slices"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
)

const (
	// perProcess is the number of candidates in a process.
	perProcess = 10
	// learning is the number of events of an election that are not measured. In these, the candidates learn that they are many.
	learning = 30
)

// crowd is a number of candidates of incumbent that take part in the same elections. Half of them have the default revision.
type crowd struct {
	candidates, elections int
	children              []*child
	row                   *Herd
}

// herd counts the rejected writes of many candidates that react to the same event: a leader stops, or the default revision
// changes.
func (l *lab) herd(s *Scenario) error {
	for _, n := range []int{20, 100} {
		if err := l.measureHerd(&crowd{candidates: n, elections: choose(l, 1, 2)}, s); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) measureHerd(c *crowd, s *Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "herd")
	if err != nil {
		return err
	}
	if _, err := l.setDefault(stable); err != nil {
		return err
	}
	if c.children, err = l.newChildren(electors.Incumbent, c.candidates/perProcess); err != nil {
		return err
	}
	defer end(c.children)
	if err := l.enterHerd(c, namespace); err != nil {
		return err
	}
	for _, e := range []struct {
		event string
		begin func(*crowd, int) (time.Time, error)
		// each is the number of rounds for an event in each election.
		each int
	}{
		{Stop, l.stopLeader, c.elections},
		{Steal, l.flipDefault, 1},
	} {
		for _, events := range []int{learning, choose(l, 20, 50)} {
			if err := l.rounds(c, e.event, events*e.each, e.begin); err != nil {
				return err
			}
		}
		s.Herds = append(s.Herds, *c.row)
	}
	return nil
}

// enterHerd starts the candidates.
func (l *lab) enterHerd(c *crowd, namespace string) error {
	for i, child := range c.children {
		for k := range perProcess {
			spec := setups[0].spec(namespace, "e", fmt.Sprintf("replica-%d-%d", i, k))
			spec.Revision = []string{stable, canary}[i%2]
			if err := child.enter(Candidates{Spec: spec, Elections: c.elections}); err != nil {
				return err
			}
		}
	}
	return l.pause(electors.IstioTiming.Retry)
}

// stopLeader stops the leader of one election and replaces it by a new candidate. It returns when the run function returned.
func (l *lab) stopLeader(c *crowd, round int) (from time.Time, err error) {
	election := fmt.Sprint("e-", round%c.elections)
	for _, child := range c.children {
		if from, err = child.replace(election); err != nil || !from.IsZero() {
			return from, err
		}
	}
	return from, fmt.Errorf("no process leads %s", election)
}

// flipDefault changes the default revision, and so the leader of each election.
func (l *lab) flipDefault(_ *crowd, round int) (time.Time, error) {
	return l.setDefault([]string{canary, stable}[round%2])
}

// rounds measures events.
func (l *lab) rounds(c *crowd, event string, rounds int, begin func(*crowd, int) (time.Time, error)) error {
	changed := map[string]int{Stop: 1, Steal: c.elections}[event]
	c.row = &Herd{Event: event, Candidates: c.candidates, Elections: c.elections}
	before, err := samples(c.children)
	if err != nil {
		return err
	}
	for n := range rounds {
		from, err := begin(c, n)
		if err != nil {
			return err
		}
		if err := l.newLeaders(c, from, changed); err != nil {
			return fmt.Errorf("%s %d of %d candidates: %w", event, n, c.candidates, err)
		}
		if err := l.pause(300 * time.Millisecond); err != nil { // late requests
			return err
		}
	}
	after, err := samples(c.children)
	if err != nil {
		return err
	}
	per := 1 / float64(rounds*changed)
	for i := range after {
		c.row.Conflicts += float64(after[i].Conflicts-before[i].Conflicts) * per
		c.row.Reads += float64(after[i].Counts["get configmaps"]-before[i].Counts["get configmaps"]) * per
	}
	return nil
}

// newLeaders waits for leaders that began after from, and records the times.
func (l *lab) newLeaders(c *crowd, from time.Time, changed int) error {
	deadline := time.Now().Add(bound)
	for {
		if err := l.pause(50 * time.Millisecond); err != nil {
			return err
		}
		all, err := samples(c.children)
		if err != nil {
			return err
		}
		live := 0
		var times []float64
		for _, s := range all {
			live += s.Live
			for _, began := range s.Began {
				if began.After(from) {
					times = append(times, inMillis(began.Sub(from)))
				}
			}
		}
		switch {
		case len(times) == changed && live == c.elections:
			c.row.Millis = slices.Concat(c.row.Millis, times)
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d elections have a new leader after %v", len(times), changed, bound)
		}
	}
}
