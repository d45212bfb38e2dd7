package coordination

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// simMemory is what the checks remember of what one term of a coordinator was shown, by its clock, however the Observer remembers it.
type simMemory struct {
	lock       leaseState
	lockSince  time.Time // which may be before the term
	judged     bool      // whether who is named in it has come
	over       string    // the version that its last write has replaced
	preferred  string
	since      time.Time // of that preference
	candidates map[string]simKnown
	withdrawn  map[string]simWithdrawn
}

type simKnown struct {
	uid             string
	renewed, pinged int64
	answered, asked time.Time
	refused, gave   time.Time
	tried           bool // it was named or preferred, or has led
	// failures is how often in a row it was named and did not come, aloneUntil until when it is not to be named again for that.
	failures   int
	aloneUntil time.Time
}

// fails notes that it was named and did not come: it is left alone for ten seconds, and twice as long the next time, for five minutes at most.
func (k *simKnown) fails(now time.Time) {
	k.aloneUntil = now.Add(min(2*ElectionDuration<<min(k.failures, 10), 5*time.Minute))
	k.failures++
}

// simWithdrawn is a preference that was given up, and after how many troubles.
type simWithdrawn struct {
	at       time.Time
	troubles int
}

func (m *simMemory) withdraw(who string, now time.Time, troubles int) {
	if m.withdrawn == nil {
		m.withdrawn = map[string]simWithdrawn{}
	}
	m.withdrawn[who] = simWithdrawn{now, troubles}
}

func (m *simMemory) observe(now time.Time, e Election, troubles int) {
	known := m.candidates
	m.candidates = map[string]simKnown{}
	for _, o := range e.Candidates {
		k, renewed, pinged := known[o.Name], micros(o.Spec.RenewTime), micros(o.Spec.PingTime)
		if k.uid != string(o.UID) {
			k = simKnown{uid: string(o.UID), renewed: renewed, pinged: pinged, asked: now}
		}
		if k.renewed != renewed {
			k.renewed, k.answered = renewed, now
		}
		if k.pinged != pinged {
			k.pinged, k.asked = pinged, now
		}
		m.candidates[o.Name] = k
	}
	if e.Lease != nil && m.over == e.Lease.ResourceVersion {
		return // what it has written is not seen yet
	}
	m.over = ""
	m.judge(now, stateOf(e.Lease))
	m.observeLock(now, stateOf(e.Lease))
	if who := preferred(e.Lease); who != m.preferred {
		// It has had the time to come, for another coordinator, whose clock may be faster.
		if w := m.withdrawn[m.preferred]; who == "" && w.at.Before(m.since) && now.Sub(m.since) >= ElectionDuration*9/10 {
			m.withdraw(m.preferred, now, troubles)
		}
		m.preferred, m.since = who, now
	}
	m.try(m.preferred)
}

// judge notes, once for each nomination, whether who was named has come. That another coordinator has named it while it was to be left alone, and
// in vain, does not leave it alone for longer.
func (m *simMemory) judge(now time.Time, state leaseState) {
	if k, known := m.candidates[m.lock.holder]; known && m.lock.nominated && !m.judged && (state.holder != m.lock.holder || state.nominated) {
		overdue := !now.Before(m.lockSince.Add(ElectionDuration)) && !k.aloneUntil.After(m.lockSince)
		if m.judged = overdue || state.holder == "" && state.uid == m.lock.uid; m.judged {
			k.fails(now)
			m.candidates[m.lock.holder] = k
		}
	}
	if k, known := m.candidates[state.holder]; known && !state.nominated {
		k.failures, k.aloneUntil = 0, time.Time{} // it leads
		m.candidates[state.holder] = k
	}
	if state != m.lock {
		m.lockSince, m.judged = now, false
	}
}

func (m *simMemory) try(who string) {
	if k, ok := m.candidates[who]; ok {
		k.tried = true
		m.candidates[who] = k
	}
}

func (m *simMemory) observeLock(now time.Time, state leaseState) {
	if k, ok := m.candidates[m.lock.holder]; ok && state.holder == "" && state.uid == m.lock.uid {
		if m.lock.nominated {
			k.refused = now
		} else {
			k.gave = now
		}
		m.candidates[m.lock.holder] = k
	}
	if k, ok := m.candidates[state.holder]; ok && !state.nominated {
		k.refused, k.gave = time.Time{}, time.Time{}
		m.candidates[state.holder] = k
	}
	if m.lock.uid != state.uid || m.lock.transitions != state.transitions || m.lock.holder != state.holder {
		m.withdrawn, m.preferred = nil, ""
	}
	m.lock = state
	m.try(state.holder)
}

func (m *simMemory) wrote(now time.Time, over string, stored *coordinationv1.Lease) {
	m.judge(now, stateOf(stored))
	if value(stored.Spec.HolderIdentity) != m.lock.holder || preferred(stored) == "" {
		m.preferred = ""
	}
	m.over, m.lock = over, stateOf(stored)
	m.try(m.lock.holder)
	m.try(preferred(stored))
}

// planned looks at what a coordinator plans, with what it sees.
func (c *simChecks) planned(by *simCoordinator, e Election, p Plan) {
	if (len(p.Ping) > 0 || p.Lease != nil) && c.settledFor() > simSettled {
		c.violated(simQuiet, "coordinator %d writes although nothing has changed for %v: %v", by.id, c.settledFor(), p)
	}
	c.effort(by, len(p.Ping)+len(p.Collect))
	if p.Lease == nil {
		return
	}
	c.effort(by, 1)
	if p.Lease.Spec.HolderIdentity == nil {
		c.violated(simNilHolder, "coordinator %d writes a holder that is nil", by.id)
	}
	switch written := strategyOf(e.Lease); {
	case written == DefaultRevision:
	case written == "" && e.wipedBeside() && stateOf(e.Lease) == stateOf(p.Lease) && preferred(e.Lease) == preferred(p.Lease):
	default:
		c.violated(simStrategy, "coordinator %d writes the lock of strategy %q: %v", by.id, written, p)
	}
	holder, before := value(p.Lease.Spec.HolderIdentity), value(e.Lease.Spec.HolderIdentity)
	switch who, was := preferred(p.Lease), preferred(e.Lease); {
	case holder != before:
		c.chosen(by, e, holder)
	case who != "" && who != was:
		c.chosen(by, e, who)
		c.prefers(by, e, who)
	case who == "" && was != "" && by.memory.since.Add(ElectionDuration).Compare(by.clock()) <= 0:
		by.memory.withdraw(was, by.clock(), c.troubles)
	}
}

// wipedBeside reports whether a lock without a strategy is free, or held by a candidate.
func (e Election) wipedBeside() bool {
	holder := value(e.Lease.Spec.HolderIdentity)
	return holder == "" || slices.ContainsFunc(e.Candidates, func(o *coordinationv1beta1.LeaseCandidate) bool { return o.Name == holder })
}

// chosen looks at whom a coordinator names or prefers: somebody who has answered, and has not just refused.
func (c *simChecks) chosen(by *simCoordinator, e Election, who string) {
	now, k := by.clock(), by.memory.candidates[who]
	switch {
	case k.uid == "":
		c.violated(simSilent, "coordinator %d chooses %s, who is no candidate", by.id, who)
	case k.answered.IsZero() || now.Sub(k.answered) > 2*ElectionDuration:
		c.violated(simSilent, "coordinator %d chooses %s, who has not answered", by.id, who)
	case !k.refused.IsZero() && now.Sub(k.refused) < 2*ElectionDuration:
		c.violated(simRefused, "coordinator %d chooses %s, who has given the lock back %v ago", by.id, who, now.Sub(k.refused))
	}
	able := slices.DeleteFunc(slices.Clone(e.Candidates), func(o *coordinationv1beta1.LeaseCandidate) bool {
		k, unfit := by.memory.candidates[o.Name], o.Labels[FitLabel] == "false" && value(e.Lease.Spec.HolderIdentity) != ""
		return o.Name != who && (k.tried || unfit || asked(o.Spec) || k.answered.IsZero() || now.Sub(k.answered) >= ElectionDuration)
	})
	if len(able) > 1 && !k.gave.IsZero() && now.Sub(k.gave) < ElectionDuration {
		c.violated(simRefused, "coordinator %d chooses %s, who has given the lock up %v ago, and another has answered", by.id, who, now.Sub(k.gave))
	} else if best := simBest(e.Situation, able); best != who && k.uid != "" {
		c.violated(simBetter, "coordinator %d chooses %s, and %s, who is better, has answered", by.id, who, best)
	}
}

// prefers looks at a preference beside a holder.
func (c *simChecks) prefers(by *simCoordinator, e Election, who string) {
	now, holder := by.clock(), value(e.Lease.Spec.HolderIdentity)
	if w, ok := by.memory.withdrawn[who]; ok && w.troubles == c.troubles && now.Sub(w.at) < 2*ElectionDuration {
		c.violated(simAgain, "coordinator %d prefers %s again %v after it has given that up", by.id, who, now.Sub(w.at))
	}
	k := by.memory.candidates[holder]
	if k.uid == "" || stateOf(e.Lease).nominated {
		return
	}
	both := slices.Clone(e.Candidates)
	both = slices.DeleteFunc(both, func(o *coordinationv1beta1.LeaseCandidate) bool {
		return o.Name != who && (o.Name != holder || asked(o.Spec) && now.Sub(k.asked) >= ElectionDuration)
	})
	if best := simBest(Situation{DefaultRevision: e.Situation.DefaultRevision, Holder: holder}, both); best == holder {
		c.violated(simDisturbed, "coordinator %d prefers %s to %s, who leads and is better", by.id, who, holder)
	}
}
