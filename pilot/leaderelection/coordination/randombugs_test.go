package coordination

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// simBug is a defect that is planted around Plan; the zero value is none.
type simBug struct {
	name   string
	check  simCheck // that has to catch it
	around func(c *simCoordinator, e Election, plan func(Election) Plan) Plan
}

func (b simBug) plan(c *simCoordinator, e Election) Plan {
	plan := func(e Election) Plan { return c.observer.Plan(c.clock(), c.wall(), e, Own()) }
	if b.around == nil {
		return plan(e)
	}
	return b.around(c, e, plan)
}

// since is for how long something has been so in this term: the first call says 0.
func (c *simCoordinator) since(what string) time.Duration {
	if c.notes == nil {
		c.notes = map[string]time.Time{}
	}
	if _, noted := c.notes[what]; !noted {
		c.notes[what] = c.clock()
	}
	return c.clock().Sub(c.notes[what])
}

// led reports whether a holder of the lock has written it itself, and its lease is not over.
func (c *simCoordinator) led(l *coordinationv1.Lease) bool {
	return l != nil && strategyOf(l) == DefaultRevision && value(l.Spec.HolderIdentity) != "" && !stateOf(l).nominated &&
		c.clock().Before(c.heard.locks[simLease].since.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second))
}

// naming is the lock with who as its holder.
func (c *simCoordinator) naming(e Election, who string) *coordinationv1.Lease {
	l := simPreferring(e, "")
	seconds, at := int32(nominationSeconds), After(c.wall(), l.Spec.RenewTime)
	l.Spec.HolderIdentity, l.Spec.AcquireTime, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &who, nil, &seconds, &at
	return l
}

func simPreferring(e Election, who string) *coordinationv1.Lease {
	l := e.Lease.DeepCopy()
	l.Spec.PreferredHolder = nil
	if who != "" {
		l.Spec.PreferredHolder = &who
	}
	return l
}

// names is whom a plan writes in, "" for nobody.
func (p Plan) names(e Election) string {
	if p.Lease == nil || p.Lease.Spec.AcquireTime != nil || stateOf(p.Lease) == stateOf(e.Lease) {
		return ""
	}
	return value(p.Lease.Spec.HolderIdentity)
}

func simUnasked(e Election) (all []*coordinationv1beta1.LeaseCandidate) {
	return slices.DeleteFunc(slices.Clone(e.Candidates), func(o *coordinationv1beta1.LeaseCandidate) bool { return asked(o.Spec) })
}

// simChoiceBugs choose the wrong one, or at the wrong time.
var simChoiceBugs = []simBug{
	{"unguarded", simGuard, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if p.Lease != nil {
			p.Lease.ResourceVersion = ""
		}
		return p
	}},
	{"expiry-by-wall-clock", simLive, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if best := simBest(e.Situation, simUnasked(e)); p.Lease == nil && best != "" && c.led(e.Lease) &&
			c.wall().After(e.Lease.Spec.RenewTime.Add(simLeaseSeconds*time.Second)) {
			p.Lease = c.naming(e, best)
		}
		return p
	}},
	{"refused-though-it-leads", simDisturbed, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		if s := stateOf(e.Lease); s.holder != "" && c.since(s.holder) < 30*time.Second {
			e.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), func(o *coordinationv1beta1.LeaseCandidate) bool { return o.Name == s.holder })
		}
		return plan(e)
	}},
	{"names-before-answers", simSilent, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if len(p.Ping) > 0 && stateOf(e.Lease).holder == "" {
			p.Lease = c.naming(e, simBest(e.Situation, e.Candidates))
		}
		return p
	}},
	{"names-any", simBetter, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if who := p.names(e); who != "" {
			for _, o := range simUnasked(e) {
				if o.Name != who {
					p.Lease = c.naming(e, o.Name)
				}
			}
		}
		return p
	}},
	{"forgets-refusals", simRefused, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		if s := stateOf(e.Lease); e.Lease != nil && s.holder == "" && c.since(s.uid+e.Lease.ResourceVersion) == 0 {
			c.observer = &Observer{}
		}
		return plan(e)
	}},
	{"all-strategies", simStrategy, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		if e.Lease != nil {
			strategy := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)
			e.Lease = e.Lease.DeepCopy()
			e.Lease.Spec.Strategy = &strategy
		}
		return plan(e)
	}},
	{"nil-holder", simNilHolder, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if p.Lease != nil && preferred(e.Lease) != "" {
			p.Lease.Spec.HolderIdentity = nil
		}
		return p
	}},
	{"waits-for-all", simLeaderless, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if p.names(e) != "" && len(simUnasked(e)) < len(e.Candidates) {
			p.Lease = nil
		}
		return p
	}},
	{"nominated-for-a-lease", simNomination, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if s := stateOf(e.Lease); s.nominated && c.since("nomination of "+e.Lease.ResourceVersion) < (simLeaseSeconds+1)*time.Second {
			p.Lease = nil
		}
		return p
	}},
}

// simEffortBugs write too much, or too little.
var simEffortBugs = []simBug{
	{"prefers-at-once-again", simAgain, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if best := simBest(e.Situation, simUnasked(e)); p.Lease == nil && best != "" && c.led(e.Lease) && preferred(e.Lease) == "" && best != stateOf(e.Lease).holder {
			p.Lease = simPreferring(e, best)
		}
		return p
	}},
	{"prefers-and-withdraws", simPreferences, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if best := simBest(e.Situation, simUnasked(e)); p.Lease == nil && best != "" && c.led(e.Lease) && best != stateOf(e.Lease).holder {
			p.Lease = simPreferring(e, best)
			if preferred(e.Lease) != "" {
				p.Lease = simPreferring(e, "")
			}
		}
		return p
	}},
	{"never-withdraws", simHandover, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if p.Lease != nil && preferred(p.Lease) == "" && preferred(e.Lease) != "" && stateOf(p.Lease) == stateOf(e.Lease) {
			p.Lease = nil
		}
		return p
	}},
	{"never-prefers", simBestLeads, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if preferred(p.Lease) != "" {
			p.Lease = nil
		}
		return p
	}},
	{"strategy-stays-wiped", simUnsettled, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		if e.Lease != nil && strategyOf(e.Lease) == "" {
			return Plan{}
		}
		return plan(e)
	}},
	{"asks-for-nothing", simQuiet, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if len(p.Ping) == 0 && p.Lease == nil && c.since(c.clock().Format("15:04")) == 0 {
			p.Ping = simUnasked(e)
		}
		return p
	}},
	{"asks-again", simPings, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		for _, o := range e.Candidates {
			if asked(o.Spec) {
				p.Ping = append(p.Ping, o)
			}
		}
		return p
	}},
	{"asks-before-it-sees", simEffort, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		for _, known := range c.observer.candidates {
			known.replaced = ""
		}
		return plan(e)
	}},
	{"writes-what-is-there", simEffort, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		if p.Lease == nil && e.Lease != nil {
			p.Lease = e.Lease.DeepCopy()
		}
		p.again(time.Millisecond)
		return p
	}},
	{"collects-at-once", simCollected, func(c *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		for _, o := range e.Candidates {
			if asked(o.Spec) && c.since("asked "+o.Name+o.ResourceVersion) > ElectionDuration {
				p.Collect = append(p.Collect, o)
			}
		}
		return p
	}},
	{"never-collects", simUncollected, func(_ *simCoordinator, e Election, plan func(Election) Plan) Plan {
		p := plan(e)
		p.Collect = nil
		return p
	}},
}
