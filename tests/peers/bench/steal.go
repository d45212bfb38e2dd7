package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// steal measures the time from setting the default revision to the start of the new leader's run function, and the
// overlap with the old one. All elections share one default revision. A round of istiod takes half a minute, so there are
// few.
func (l *lab) steal(s *Scenario) error {
	for _, f := range []flipped{
		{electors.Incumbent, choose(l, 10, 100), 300 * time.Millisecond},
		{electors.Istio, choose(l, 1, 6), electors.IstioTiming.Retry},
	} {
		if err := l.flipAll(f, s); err != nil {
			return err
		}
	}
	return nil
}

// flipped is a row of elections that depend on the default revision.
type flipped struct {
	library electors.Library
	// flips is the number of flips, gap the minimum pause between two flips.
	flips int
	gap   time.Duration
}

// pair are the two candidates of an election.
type pair struct{ stable, canary *electors.Member }

// flipAll runs the elections of a row.
func (l *lab) flipAll(f flipped, s *Scenario) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "steal")
	if err != nil {
		return err
	}
	if _, err := l.setDefault(stable); err != nil {
		return err
	}
	var pairs []*pair
	defer func() {
		for _, p := range pairs {
			p.canary.End()
			p.stable.End()
		}
	}()
	for e := range inFlight {
		p, err := l.pair(f.library, namespace, fmt.Sprint("e", e))
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	return l.flip(f, pairs, newRow(s, Series{Library: f.library.String(), Timing: electors.IstioTiming.String()}))
}

// pair starts a leader of one revision and a follower of the other.
func (l *lab) pair(library electors.Library, namespace, name string) (*pair, error) {
	s := setup{library, electors.IstioTiming, electors.ConfigMap}
	first, err := l.enter(false, library, s.spec(namespace, name, "stable-0"))
	if err != nil {
		return nil, err
	}
	if err := l.await(first.Candidate); err != nil {
		return nil, err
	}
	spec := s.spec(namespace, name, "canary-0")
	spec.Revision = canary
	second, err := l.enter(false, library, spec)
	return &pair{first, second}, err
}

// flip changes the default revision repeatedly, after every leader has renewed. A leader's first write may precede its
// default watcher, and then has no handover marker.
func (l *lab) flip(f flipped, pairs []*pair, row *row) error {
	if err := l.pause(electors.IstioTiming.Retry); err != nil {
		return err
	}
	for n := range f.flips {
		// Renewals and polls of all candidates continue.
		if err := l.pause(f.gap + rand.N(f.gap)); err != nil {
			return err
		}
		since, err := l.setDefault([]string{canary, stable}[n%2])
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		for _, p := range pairs {
			last, next := p.stable.Candidate, p.canary.Candidate
			if n%2 == 1 {
				last, next = next, last
			}
			all.Go(func() { l.followed(last, next, since, since, row) })
		}
		all.Wait()
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
	}
	return nil
}
