package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// steal measures from the moment at which the default revision is set to the start of
// the new leader's run function, and for how long the old one's is alive beside it.
// There is one default revision, so all elections that run are asked at once: ours run 8 at a time,
// and as many as Istio's.
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
	// A round of theirs takes half a minute, so that these are few. They show that it does not
	// matter to them how many move at once; the row of many shows their tail.
	fewPeers := peers
	fewPeers.elections, fewPeers.what, fewPeers.flips = inFlight, few.what, choose(l, 1, 6)

	var r rows
	rounds := [][]flipped{{few}, {fewPeers}, {lease}, {many}, {peers, mixed}}
	if l.quick {
		rounds = rounds[:2] // to take over from a peer takes a lease
	}
	for _, together := range rounds {
		if err := l.flipAll(together, &r); err != nil {
			return err
		}
	}
	return r.into(s)
}

// flipped is a row of elections that the default revision decides on.
type flipped struct {
	stable, canary electors.Library
	lock           electors.Lock
	what           string
	elections      int
	// flips is how many times the default revision moves, and gap the least time between
	// the end of one and the next.
	flips int
	gap   time.Duration
}

// pair is the two candidates of an election, and where times go when canary, and when
// stable, takes over.
type pair struct {
	stable, canary     *member
	toCanary, toStable *row
}

// flipAll runs elections of several rows under the same flips.
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
			p.canary.end()
			p.stable.end()
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

// series is the row of elections in which one library takes over from another.
func (f flipped) series(from, to electors.Library) report.Series {
	what := f.what
	if from != to {
		what = fmt.Sprintf("%s %v", report.TakingOver, from)
	}
	return report.Series{Library: to.String(), Timing: electors.IstioTiming.String(), Case: what}
}

// join enters a leader of the one revision and a follower of the other.
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

// flip moves the default revision to and fro, once every leader has renewed: its first
// write may come before it knows which revision is the default, and cannot say then
// that it hands over.
func (l *lab) flip(f flipped, pairs []*pair) error {
	if err := l.pause(electors.IstioTiming.Retry); err != nil {
		return err
	}
	revision := canary
	for range f.flips {
		// Renewals and polls of all candidates go on at their own paces meanwhile.
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
