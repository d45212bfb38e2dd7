package coordination

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// simCheck is what must never be.
type simCheck string

const (
	simGuard       simCheck = "guard"       // a coordinator's write replaces another version than it was decided on
	simLive        simCheck = "live-holder" // a coordinator writes in a holder while the lease of the one before counts
	simNilHolder   simCheck = "nil-holder"  // a coordinator writes a nil holder
	simStrategy    simCheck = "strategy"    // it writes a lock that another strategy's coordinator has
	simSilent      simCheck = "silent"      // it chooses somebody who has not answered
	simBetter      simCheck = "better"      // it chooses somebody though a better one has answered
	simRefused     simCheck = "refused"     // it chooses somebody who has just given the lock back
	simDisturbed   simCheck = "disturbed"   // it prefers another to a leader who goes before that one
	simAgain       simCheck = "again"       // it prefers again at once whom it has waited for in vain
	simPreferences simCheck = "preferences" // there are more preferences than causes
	simQuiet       simCheck = "quiet"       // it writes although the best one leads and nothing has changed
	simHandover    simCheck = "handover"    // a leader is left waiting to hand over to a worse one
	simUnsettled   simCheck = "unsettled"   // a preference, or a wrong strategy, stays beside the best leader
	simPings       simCheck = "pings"       // a candidate is asked more often than its answers run out
	simEffort      simCheck = "effort"      // a coordinator sends many requests
	simCollected   simCheck = "collected"   // a LeaseCandidate is deleted that was not silent for long enough
	simUncollected simCheck = "uncollected" // one that was silent for longer is still there
	simNomination  simCheck = "nomination"  // nobody is named in the place of one who does not come
	simLeaderless  simCheck = "leaderless"  // nobody leads, though somebody could
	simBestLeads   simCheck = "best-leads"  // another leads than the best
)

var simAllChecks = []simCheck{
	simGuard, simLive, simNilHolder, simStrategy, simSilent, simBetter, simRefused, simDisturbed, simAgain, simPreferences, simQuiet, simHandover, simUnsettled,
	simPings, simEffort, simCollected, simUncollected, simNomination, simLeaderless, simBestLeads,
}

type simViolation struct {
	check simCheck
	text  string
}

func (v simViolation) String() string { return string(v.check) + ": " + v.text }

// simBlame is how often, and when last, preferences were withdrawn.
type simBlame struct {
	times int
	at    time.Duration
}

// simChecks judge a run by what is true, stored and shown, in true time.
type simChecks struct {
	w          *simWorld
	violations []simViolation
	terms      int

	troubledAt time.Duration // bounds count from here
	troubles   int
	causes     []time.Duration // of new preferences
	preferring []time.Duration
	asking     map[string][]time.Duration
	requests   map[int][]time.Duration

	ledAt, ledSince time.Duration // somebody leads: until when, and since when the same one
	leads           *simCandidate
	unsettledAt     time.Duration // until when it was not so that the best one leads
	worseAt         time.Duration // until when nobody better than the leader could lead
	withdrawals     simBlame      // of preferences, in this term

	most map[simCheck]int // that was counted of what is bounded
}

func (c *simChecks) violated(check simCheck, format string, args ...any) {
	if slices.ContainsFunc(c.violations, func(v simViolation) bool { return v.check == check }) {
		return
	}
	text := fmt.Sprintf("%.3fs: ", c.w.now.Seconds()) + fmt.Sprintf(format, args...)
	c.violations = append(c.violations, simViolation{check, text})
	c.w.shown = c.w.shown || check == c.w.bug.check
	c.w.tracef("!! %s: %s", check, text)
}

// over reports whether no coordinator leaves alone any more who was preferred.
func (b simBlame) over(now time.Duration) bool {
	if b.times == 0 {
		return true
	}
	backOff := min(2*ElectionDuration<<min(b.times-1, 10), maxRefusalBackOff)
	return now > b.at+backOff*11/10
}

// writing looks at a coordinator's write of the lock that arrives.
func (c *simChecks) writing(by *simCoordinator, decided, l *coordinationv1.Lease) {
	now := c.w.store.lease
	if now == nil || simCompare(now, l) != nil {
		return
	}
	if decided.ResourceVersion != now.ResourceVersion {
		c.violated(simGuard, "coordinator %d replaces version %s by what was decided on %s", by.id, now.ResourceVersion, decided.ResourceVersion)
	}
	holder, age := value(now.Spec.HolderIdentity), c.w.now-c.w.store.since
	lease := time.Duration(value(now.Spec.LeaseDurationSeconds)) * time.Second
	if stateOf(now).nominated {
		lease = min(lease, ElectionDuration)
	}
	if holder != "" && holder != value(l.Spec.HolderIdentity) && age < lease*93/100 {
		c.violated(simLive, "coordinator %d writes in %s %v after %s was, for %v", by.id, value(l.Spec.HolderIdentity), age, holder, lease)
	}
}

// stored looks at each change of the lock.
func (c *simChecks) stored(was, l *coordinationv1.Lease) {
	before, after := stateOf(was), stateOf(l)
	late := c.w.now-c.w.store.since > ElectionDuration*9/10
	if before.nominated && (after.holder != before.holder || !after.nominated && late) {
		c.causes = append(c.causes, c.w.now)
	}
	if before.transitions != after.transitions || before.uid != after.uid {
		c.withdrawals = simBlame{}
		c.causes = append(c.causes, c.w.now)
	}
	if before.holder != "" && !before.nominated && after.nominated && preferred(was) == after.holder && after.transitions > before.transitions {
		c.handedOver(before.holder, after.holder)
	}
	switch old, who := preferred(was), preferred(l); {
	case old == who:
	case who != "" && c.w.stormy:
	case who != "":
		c.preferring = append(c.preferring, c.w.now)
		most := 4 + simCount(c.causes, c.w.now-time.Minute)
		if !c.alone() {
			most *= 2 // they may disagree: one has seen a refusal that was before the other's term
		}
		c.within(simPreferences, c.preferring, time.Minute, most, "preferences")
	case before.holder == after.holder:
		c.withdrawals = simBlame{c.withdrawals.times + 1, c.w.now}
	}
}

// handedOver looks at a handover: by then a preference that had become wrong was withdrawn.
func (c *simChecks) handedOver(from, to string) {
	best := c.best(from, func(p *simCandidate, o *coordinationv1beta1.LeaseCandidate) bool {
		return p.name == to || p.name == from && !asked(o.Spec)
	})
	if best == from && c.calmFor() > 2*time.Second {
		c.violated(simHandover, "%s hands over to %s, who is worse, and nothing has changed for %v", from, to, c.calmFor())
	}
}

// alone reports whether there was one coordinator at a time for a minute.
func (c *simChecks) alone() bool {
	n := 0
	for _, coordinator := range c.w.coordinators {
		if coordinator.active || c.w.now-coordinator.began < time.Minute {
			n++
		}
	}
	return n < 2
}

func simCount(times []time.Duration, since time.Duration) (n int) {
	for i := len(times) - 1; i >= 0 && times[i] >= since; i-- {
		n++
	}
	return n
}

func (c *simChecks) within(check simCheck, times []time.Duration, span time.Duration, most int, what string) {
	n := simCount(times, c.w.now-span)
	if c.most == nil {
		c.most = map[simCheck]int{}
	}
	c.most[check] = max(c.most[check], n)
	if n > most {
		c.violated(check, "%d %s in %v, and %d are allowed", n, what, span, most)
	}
}

func (c *simChecks) pinged(who string) {
	if c.asking == nil {
		c.asking = map[string][]time.Duration{}
	}
	c.asking[who] = append(c.asking[who], c.w.now)
	c.within(simPings, c.asking[who], ElectionDuration, 3, "pings of "+who)
}

func (c *simChecks) effort(by *simCoordinator, requests int) {
	if c.requests == nil {
		c.requests = map[int][]time.Duration{}
	}
	for range requests {
		c.requests[by.id] = append(c.requests[by.id], c.w.now)
	}
	c.within(simEffort, c.requests[by.id], 2*ElectionDuration, 30, "requests")
}

func (c *simChecks) collected(by *simCoordinator, object *coordinationv1beta1.LeaseCandidate) {
	for _, since := range []time.Duration{c.lastAsked(object.Name), by.began} {
		if silent := c.w.now - since; silent < CandidateDuration*96/100 {
			c.violated(simCollected, "coordinator %d collects %s after %v", by.id, object.Name, silent)
		}
	}
}

func (c *simChecks) lastAsked(who string) time.Duration {
	if all := c.asking[who]; len(all) > 0 {
		return all[len(all)-1]
	}
	return c.w.now
}
