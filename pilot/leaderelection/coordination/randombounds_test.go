package coordination

import (
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// In true time, with what clocks that are wrong by three per cent, requests and watches add.
const (
	// simLeaderlessBound: a lease runs out, candidates are asked, one is named and does not come, they are asked again.
	simLeaderlessBound = simLeaseSeconds*time.Second + 3*ElectionDuration + 3*time.Second
	// simNominationBound: a nomination runs out, and candidates are asked.
	simNominationBound = 2*ElectionDuration + 2*time.Second
	// simSettled: what was under way when the best one began to lead ends.
	simSettled = 20 * time.Second
	// simBestBound: the leader settles, two preferences, a drain.
	simBestBound = simLeaseSeconds*time.Second + 6*ElectionDuration
)

// sound reports whether a candidate would lead if it were named, and a coordinator has no reason to think otherwise.
func (p *simCandidate) sound() bool {
	return p.alive && !p.silent && !p.refuses && !p.stuck && !p.stopping && p.reachable() && p.w.store.candidates[p.name] != nil && !p.leftAlone()
}

// calmFor is for how long nothing has gone wrong.
func (c *simChecks) calmFor() time.Duration {
	if c.w.stormy || c.w.now < c.w.late {
		return 0
	}
	return c.w.now - c.troubledAt
}

func (c *simChecks) tick() {
	now, leader := c.w.now, c.w.leader()
	if leader != c.leads {
		c.leads, c.ledSince = leader, now
		c.terms++
	}
	coordinated := c.w.store.lease != nil && strategyOf(c.w.store.lease) == DefaultRevision
	if leader != nil || !coordinated {
		c.ledAt = now
	}
	if !coordinated || !c.isWorse(leader) {
		c.worseAt = now
	}
	if !c.settled(leader) {
		c.unsettledAt = now
	}
	c.leaderless()
	c.lasting(leader)
	for name, o := range c.w.store.candidates {
		if p := c.w.candidate(name); !p.alive && asked(o.Spec) && now-max(c.lastAsked(name), c.coordinatedSince()) > CandidateDuration*11/10 {
			c.violated(simUncollected, "%s was asked %v ago", name, now-c.lastAsked(name))
		}
	}
}

// coordinatedSince is when the last term began.
func (c *simChecks) coordinatedSince() (at time.Duration) {
	for _, coordinator := range c.w.coordinators {
		at = max(at, coordinator.began, coordinator.paused)
	}
	return at
}

// leaderless looks at a lock that nobody has, or one who was named and does not come.
func (c *simChecks) leaderless() {
	state := stateOf(c.w.store.lease)
	able, since := "", c.w.now
	for _, p := range c.w.candidates {
		if p.leftAlone() {
			p.alone = c.w.now
		}
		if p.sound() && p.name != state.holder && p.alone < since {
			able, since = p.name, p.alone
		}
	}
	if able == "" {
		c.ledAt = c.w.now
		return
	}
	since = max(since, c.ledAt, c.troubledAt)
	if d := c.w.now - since; d > simLeaderlessBound && c.calmFor() > 0 {
		c.violated(simLeaderless, "nobody leads for %v, though %s could: %s", d, able, simShown(c.w.store.lease))
	}
	if d := c.w.now - max(since, c.w.store.since); state.nominated && d > simNominationBound && c.calmFor() > 0 {
		c.violated(simNomination, "%s was named %v ago and does not come, though %s could lead", state.holder, d, able)
	}
}

// leftAlone reports whether all who coordinate are right not to name it: it was named and did not come, up to five minutes ago. Each coordinator knows
// of what it has seen in its term alone, so that one that has just begun may name it while the others do not.
func (p *simCandidate) leftAlone() bool {
	coordinated := false
	for _, c := range p.w.coordinators {
		if !c.active {
			continue
		}
		coordinated = true
		if !c.clock().Before(c.memory.candidates[p.name].aloneUntil) {
			return false
		}
	}
	return coordinated
}

// isWorse reports whether somebody else should lead.
func (c *simChecks) isWorse(leader *simCandidate) bool {
	if leader == nil {
		return false
	}
	best := c.w.candidate(c.best(leader.name, func(p *simCandidate, _ *coordinationv1beta1.LeaseCandidate) bool {
		return p == leader || p.alive && !p.silent
	}))
	return best != nil && best != leader && best.sound() && best.labels[FitLabel] != "false" // for whom no term need end
}

// best is the best of those that count, beside a holder.
func (c *simChecks) best(holder string, counts func(*simCandidate, *coordinationv1beta1.LeaseCandidate) bool) string {
	all := make([]*coordinationv1beta1.LeaseCandidate, 0, len(c.w.store.candidates))
	for name, o := range c.w.store.candidates {
		if counts(c.w.candidate(name), o) {
			all = append(all, o)
		}
	}
	return simBest(Situation{DefaultRevision: c.w.defaultRevision, Holder: holder}, all)
}

// settled reports whether the best candidate leads. Who was asked and is silent does not count.
func (c *simChecks) settled(leader *simCandidate) bool {
	return leader != nil && c.best(leader.name, func(_ *simCandidate, o *coordinationv1beta1.LeaseCandidate) bool { return !asked(o.Spec) }) == leader.name
}

// settledFor is for how long the best candidate has been leading, and nothing has changed.
func (c *simChecks) settledFor() time.Duration {
	since := max(c.unsettledAt, c.troubledAt, c.ledSince)
	if c.w.stormy || c.unsettledAt == c.w.now || !c.settled(c.w.leader()) {
		return 0
	}
	return c.w.now - since
}

// lasting looks at what must not last beside a leader.
func (c *simChecks) lasting(leader *simCandidate) {
	now, l := c.w.now, c.w.store.lease
	if d := c.settledFor(); d > simSettled {
		if who := preferred(l); who != "" {
			c.violated(simUnsettled, "for %v %s leads and is best, and the lock prefers %s", d, leader.name, who)
		}
		if s := strategyOf(l); s == "" {
			c.violated(simUnsettled, "for %v %s leads, and the strategy is wiped", d, leader.name)
		}
	}
	if d := now - max(c.worseAt, c.troubledAt, c.ledSince); d > simBestBound && c.calmFor() > 0 && c.withdrawals.over(now-simBestBound) {
		c.violated(simBestLeads, "for %v %s leads, and is not the best", d, leader.name)
	}
}
