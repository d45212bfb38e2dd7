package coordination

import (
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/record"
)

const (
	// electionDuration is how long a coordinator waits for an answer, and how long an answer counts.
	electionDuration = 5 * time.Second
	// candidateDuration is how long a candidate may leave a ping unanswered before its LeaseCandidate is deleted.
	candidateDuration = 30 * time.Minute
	// maxTimeLead limits how far a recorded time may be ahead. A later one is replaced, as electors do.
	maxTimeLead = 24 * time.Hour
	// maxBackOff limits the back-off after a refused nomination or a failed preference.
	maxBackOff = 5 * time.Minute
)

// election is the state of one election in the caches.
type election struct {
	// Lease is the lock. It is nil if the lock does not exist. A plan does not create it.
	Lease      *coordinationv1.Lease
	Candidates []*coordinationv1beta1.LeaseCandidate
	// Annotate is true if the API server drops strategy and preferredHolder of a Lease and does not create locks.
	Annotate  bool
	Situation Situation
}

// plan contains the writes of a coordinator. The zero plan writes nothing.
type plan struct {
	// Ping and Delete are candidates to ping and to delete.
	Ping   []*coordinationv1beta1.LeaseCandidate
	Delete []*coordinationv1beta1.LeaseCandidate
	// Lease is the new content of the lock, or nil. It has the resourceVersion on which the plan is based.
	Lease *coordinationv1.Lease
	// Again is the time until the next plan if nothing changes. If 0, no plan is needed.
	Again time.Duration
	// Err is the reason why no candidate is named although one should be.
	Err error
	// Invalid lists candidates with invalid labels.
	Invalid []error
}

func micros(t *metav1.MicroTime) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// plan returns what to write now. now is the coordinator's monotonic clock. wall is written as pingTime and renewTime
// and may be wrong.
func (o *observer) plan(now time.Time, wall time.Time, e election, strategies Registry) (p plan) {
	o.observe(now, e)
	o.expireNomination(now, e.Lease)
	available := o.available(now, e, &p)
	if len(available) == 0 {
		if len(e.Candidates) > 0 && e.Lease != nil && ptr.Deref(e.Lease.Spec.HolderIdentity, "") == "" && strategyOf(e.Lease) != "" {
			p.Err = errNoCandidates // all candidates are silent or have refused
		}
		return p
	}
	candidates := p.parse(available)
	if e.Lease == nil {
		if _, err := chooseStrategy(candidates); errors.Is(err, errStrategies) {
			p.Err = err // Kubernetes' coordinator does not create the lock for this reason
		}
		return p
	}
	written := strategyOf(e.Lease)
	_, known := strategies[written]
	if !known && !o.writesStrategy(now, e, &p) {
		return p // an election of another coordinator, or not coordinated
	}
	e.Situation.Holder = o.holder(now, e.Lease)
	best, strategy, err := strategies.choose(e.Situation, candidates)
	switch {
	case errors.Is(err, errStrategies), err != nil && strategy == written:
		p.Err = err
	case err != nil: // an election of another coordinator
	case strategy == written:
		best = o.withoutUnfit(e, strategies[written], candidates, best)
		o.choose(now, wall, e, available, best, &p)
	case !known || o.writesStrategy(now, e, &p):
		p.Lease = e.Lease.DeepCopy()
		setStrategy(p.Lease, strategy, e.Annotate)
		if p.Lease.Spec.HolderIdentity == nil {
			p.Lease.Spec.HolderIdentity = new("")
		}
	}
	return p
}

// withoutUnfit returns best. If best is unfit and the lock has a live holder, it returns the best candidate that is fit or the
// holder, because an unfit candidate would release the lock and the term would end for nothing.
func (o *observer) withoutUnfit(e election, strategy Strategy, candidates []Candidate, best Candidate) Candidate {
	holder := e.Situation.Holder
	if !best.Unfit || holder == "" || preferredHolder(e.Lease) != "" {
		return best
	}
	next, found := strategy(e.Situation, slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return c.Unfit && c.Name != holder }))
	if !found {
		return Candidate{Name: holder}
	}
	return next
}

// choose plans the writes that make best the leader.
func (o *observer) choose(now, wall time.Time, e election, available []*coordinationv1beta1.LeaseCandidate, best Candidate, p *plan) {
	holder := e.Situation.Holder
	live := holder != ""
	if live {
		p.within(o.expiry(e.Lease).Sub(now))
	}
	switch {
	case live && best.Name == holder:
		if preferredHolder(e.Lease) != "" {
			p.Lease = e.Lease.DeepCopy()
			clearPreferredHolder(p.Lease)
		}
	case live && o.mustWait(now, best.Name, e.Lease, p):
	case o.poll(now, available, p):
		p.name(best.Name, live, wall, e)
	}
}

// writesStrategy reports whether to write the strategy that the candidates request.
//
// An elector without coordination or an operator may have removed the strategy. If a candidate holds the lock, it is restored
// immediately; Kubernetes' coordinator would take 15 minutes. On a free lock Kubernetes' coordinator restores it, if it runs.
// A holder that is no candidate removes the strategy with each renewal, so it is not restored.
//
// Another strategy is replaced if the lock has no leader for an election duration. Before, Kubernetes' coordinator may still have
// to write the new strategy.
func (o *observer) writesStrategy(now time.Time, e election, p *plan) bool {
	holder := ptr.Deref(e.Lease.Spec.HolderIdentity, "")
	free := o.since
	switch {
	case strategyOf(e.Lease) == "" && holder == "" && e.Annotate:
		return true
	case strategyOf(e.Lease) == "" && holder != "":
		return slices.ContainsFunc(e.Candidates, func(c *coordinationv1beta1.LeaseCandidate) bool { return c.Name == holder })
	case holder != "":
		free = o.expiry(e.Lease)
	}
	left := free.Add(electionDuration).Sub(now)
	if left > 0 {
		p.within(left)
	}
	return left <= 0
}

// mustWait reports whether best must not be preferred to a live holder yet. If a preferred candidate did not acquire the lock in
// time, mustWait plans to remove the preference. A preference stays for an election duration, because two coordinators
// that disagree would otherwise change it continuously.
func (o *observer) mustWait(now time.Time, best string, l *coordinationv1.Lease, p *plan) bool {
	skippedUntil := ptr.Deref(o.candidates[best], candidateState{}).skipped.until
	switch end := o.preference.since.Add(electionDuration); {
	case o.preference.name != "" && now.Before(end):
		p.within(end.Sub(now))
	case o.preference.name != "":
		p.within(o.skip(now, o.preference.name))
		p.Lease = l.DeepCopy()
		clearPreferredHolder(p.Lease)
	case now.Before(skippedUntil):
		p.within(skippedUntil.Sub(now))
	case now.Before(end) && best == o.preference.failed: // another coordinator removed the preference
		p.within(o.skip(now, best))
	case now.Before(end): // another coordinator changed its choice
		p.within(end.Sub(now))
	default:
		return false
	}
	return true
}

// within limits the time until the next plan to d.
func (p *plan) within(d time.Duration) {
	if p.Again == 0 || d < p.Again {
		p.Again = max(d, time.Millisecond)
	}
}

func (p *plan) parse(objects []*coordinationv1beta1.LeaseCandidate) (all []Candidate) {
	for _, object := range objects {
		c, err := parseCandidate(object)
		if err != nil {
			p.Invalid = append(p.Invalid, err)
		}
		if c.Name != "" {
			all = append(all, c)
		}
	}
	return all
}

// available returns the candidates that may be named. Candidates that left a ping unanswered or just refused are not available.
// Candidates that just released the lock are available only if no other candidate is.
func (o *observer) available(now time.Time, e election, p *plan) (all []*coordinationv1beta1.LeaseCandidate) {
	var released []*coordinationv1beta1.LeaseCandidate
	for _, object := range e.Candidates {
		c := o.candidates[object.Name]
		switch {
		case c.unanswered && !now.Before(c.askedAt.Add(candidateDuration)):
			p.Delete = append(p.Delete, object)
		case c.unanswered && !now.Before(c.askedAt.Add(electionDuration)):
			p.within(c.askedAt.Add(candidateDuration).Sub(now))
		case now.Before(c.refused.until):
			p.within(c.refused.until.Sub(now))
		case !c.releasedAt.IsZero() && now.Before(c.releasedAt.Add(electionDuration)):
			p.within(c.releasedAt.Add(electionDuration).Sub(now))
			released = append(released, object)
		default:
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		return released
	}
	return all
}

// poll plans pings of the candidates without a recent answer. It reports whether all have answered.
func (o *observer) poll(now time.Time, available []*coordinationv1beta1.LeaseCandidate, p *plan) (complete bool) {
	complete = true
	for _, object := range available {
		c := o.candidates[object.Name]
		switch fresh := !c.answered.IsZero() && now.Before(c.answered.Add(electionDuration)); {
		case c.unanswered:
			complete = false
			p.within(c.askedAt.Add(electionDuration).Sub(now))
		case !fresh && c.isStale(now, object):
			complete = false
			p.within(c.staleSince.Add(electionDuration).Sub(now))
		case !fresh:
			complete = false
			p.Ping = append(p.Ping, object)
		}
	}
	return complete
}

// name plans that best leads: as the preferred holder if there is a live holder, otherwise as the holder.
func (p *plan) name(best string, live bool, wall time.Time, e election) {
	l := e.Lease.DeepCopy()
	p.Lease = l
	if live {
		setPreferredHolder(l, best, e.Annotate)
		p.within(electionDuration)
		return
	}
	clearPreferredHolder(l)
	renewed := laterThan(wall, e.Lease.Spec.RenewTime)
	l.Spec.HolderIdentity = &best
	l.Spec.AcquireTime = nil
	l.Spec.LeaseDurationSeconds = new(int32(record.NominationSeconds))
	l.Spec.RenewTime = &renewed
}

// laterThan returns wall, or a later time than last if wall is not later. A write must change the object. If last is too far ahead,
// laterThan returns wall.
func laterThan(wall time.Time, last *metav1.MicroTime) metav1.MicroTime {
	if last != nil && !wall.After(last.Time) && last.Time.Before(wall.Add(maxTimeLead)) {
		wall = last.Add(time.Second)
	}
	return metav1.NewMicroTime(wall.Truncate(time.Microsecond))
}

// isPinged reports whether a ping is unanswered, by the order of the times.
func isPinged(spec coordinationv1beta1.LeaseCandidateSpec) bool {
	return spec.PingTime != nil && (spec.RenewTime == nil || spec.RenewTime.Before(spec.PingTime))
}

// pinged returns the candidate with a new pingTime. It is later than renewTime, unless that is too far ahead.
func pinged(object *coordinationv1beta1.LeaseCandidate, wall time.Time) *coordinationv1beta1.LeaseCandidate {
	ping := object.DeepCopy()
	at := laterThan(wall, object.Spec.RenewTime)
	ping.Spec.PingTime = &at
	return ping
}
