package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// steal measures the time from setting the default revision to the start of the new leader's run function, and the
// overlap with the old one. All elections share one default revision. incumbent runs with 8 elections, and with as many
// as Istio.
func (l *lab) steal(s *report.Scenario) error {
	ours := func(c string) flipped {
		return flipped{
			stable: electors.Incumbent, canary: electors.Incumbent, lock: electors.ConfigMap, what: c,
			elections: inFlight, flips: choose(l, 10, 100), gap: 300 * time.Millisecond,
		}
	}
	few := ours(fmt.Sprintf("%d at once", inFlight))
	lease := few
	lease.lock, lease.what = electors.Lease, few.what+", Lease"
	many := ours("")
	many.elections = choose(l, 20, 100)
	many.flips, many.what = choose(l, 2, 10), fmt.Sprintf("%d at once", many.elections)
	many.gap = 3 * time.Second

	peers := flipped{
		stable: electors.Istio, canary: electors.Istio, lock: electors.ConfigMap,
		elections: many.elections, what: many.what, flips: choose(l, 1, 4), gap: electors.IstioTiming.Retry,
	}
	mixed := peers
	mixed.canary, mixed.elections = electors.Incumbent, 20
	// A round of istiod takes half a minute, so there are few. They show that the number of elections does not matter.
	fewPeers := peers
	fewPeers.elections, fewPeers.what, fewPeers.flips = inFlight, few.what, choose(l, 1, 6)

	var r rows
	rounds := [][]flipped{{few}, {fewPeers}, {lease}, {many}, {peers, mixed}}
	if l.quick {
		rounds = rounds[:2] // acquiring the lock from a peer takes a lease
	}
	for _, together := range rounds {
		if err := l.flipAll(together, &r); err != nil {
			return err
		}
	}
	return r.into(s)
}

// flipped is a row of elections that depend on the default revision.
type flipped struct {
	stable, canary electors.Library
	lock           electors.Lock
	what           string
	elections      int
	// flips is the number of flips, gap the minimum pause between two flips.
	flips int
	gap   time.Duration
}

// pair are the two candidates of an election, and the results when canary or stable acquires the lock.
type pair struct {
	stable, canary     *electors.Member
	toCanary, toStable *row
}

// flipAll runs elections of several rows with the same flips.
func (l *lab) flipAll(all []flipped, r *rows) error {
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
	for i, f := range all {
		toCanary := r.add(f.series(f.stable, f.canary))
		toStable := toCanary
		if f.stable != f.canary {
			toStable = r.add(f.series(f.canary, f.stable))
		}
		for e := range f.elections {
			p := &pair{toCanary: toCanary, toStable: toStable}
			if err := l.join(f, namespace, fmt.Sprintf("e%d-%d", i, e), p); err != nil {
				return err
			}
			pairs = append(pairs, p)
		}
	}
	return l.flip(all[0], pairs)
}

// series returns the row for acquiring the lock of one library from another.
func (f flipped) series(from, to electors.Library) report.Series {
	what := f.what
	if from != to {
		what = fmt.Sprintf("%s %v", report.TakingOver, from)
	}
	return report.Series{Library: to.String(), Timing: electors.IstioTiming.String(), Case: what}
}

// join starts a leader of one revision and a follower of the other.
func (l *lab) join(f flipped, namespace, name string, p *pair) (err error) {
	spec := electors.Spec{
		Namespace: namespace, Election: name, Identity: "stable-0", Revision: stable, Lock: f.lock, Timing: electors.IstioTiming,
	}
	if p.stable, err = l.enterAs(f.stable, spec); err != nil {
		return err
	}
	if err := l.await(p.stable.Candidate); err != nil {
		return err
	}
	spec.Identity, spec.Revision = "canary-0", canary
	p.canary, err = l.enterAs(f.canary, spec)
	return err
}

// flip changes the default revision repeatedly, after every leader has renewed. A leader's first write may precede its
// default watcher, and then has no handover marker.
func (l *lab) flip(f flipped, pairs []*pair) error {
	if err := l.pause(electors.IstioTiming.Retry); err != nil {
		return err
	}
	revision := canary
	for range f.flips {
		// Renewals and polls of all candidates continue.
		if err := l.pause(f.gap + rand.N(f.gap)); err != nil {
			return err
		}
		since, err := l.setDefault(revision)
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		for _, p := range pairs {
			last, next, row := p.stable.Candidate, p.canary.Candidate, p.toCanary
			if revision == stable {
				last, next, row = next, last, p.toStable
			}
			all.Go(func() {
				if !l.followed(last, next, since, row) {
					row.lost()
				}
			})
		}
		all.Wait()
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		revision = map[string]string{stable: canary, canary: stable}[revision]
	}
	return nil
}
