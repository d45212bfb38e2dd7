package k8sleaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// durations measures the intervals for the Observer. Each field is the begin of a running interval, or zero.
type durations struct {
	drainSince, requestedSince, handingOverSince, leaderlessSince core.Instant
	// wantsSince is since when this candidate has a reason to request the lock.
	wantsSince core.Instant
}

func (s *durations) pass(r *reporter, c *change) {
	s.wants(r.core.WantsHandover(&c.after, c.in.Now.Mono), c.in.Now.Mono)
	now := c.in.Now.Mono
	before := &c.before
	after := &c.after
	if after.Phase == core.Draining && before.Phase != core.Draining {
		s.drainSince = now
	}
	if !after.Running {
		r.ended(Drain, &s.drainSince, now)
	}
	s.handover(r, c)
	switch since := r.leaderlessSince(c); {
	case since == 0 && after.Known != core.Unread:
		r.ended(Leaderless, &s.leaderlessSince, now)
	case s.leaderlessSince == 0:
		s.leaderlessSince = since
	}
}

// wants updates wantsSince.
func (s *durations) wants(wants bool, now core.Instant) {
	switch {
	case !wants:
		s.wantsSince = 0
	case s.wantsSince == 0:
		s.wantsSince = now
	}
}

// handover measures a handover for the challenger and for the leader.
func (s *durations) handover(r *reporter, c *change) {
	now := c.in.Now.Mono
	op := c.acknowledged()
	switch {
	case op == core.SendRequest && s.requestedSince == 0:
		s.requestedSince = c.before.Flight.Sent.Mono
	case c.after.Phase == core.Leading && c.before.Phase != core.Leading && r.claim == core.Nominated:
		r.ended(Handover, &s.requestedSince, now)
	}
	if !c.after.Requesting.Wanted && op != core.SendRequest && c.after.Phase == core.Following || c.after.Phase == core.Leading {
		s.requestedSince = 0 // not needed any more
	}
	if c.beginsHandover() {
		s.handingOverSince = now
	}
	switch {
	case op == core.HandOver:
		r.ended(HandoverGiven, &s.handingOverSince, now)
	case !c.after.Drain.HandOver && c.after.Phase == core.Following:
		s.handingOverSince = 0
	}
}

// handoverSince returns when the pending handover began, or zero.
func (s *durations) handoverSince() core.Instant {
	if s.wantsSince != 0 {
		return s.wantsSince
	}
	return s.handingOverSince
}

// ended reports a running interval and ends it.
func (r *reporter) ended(what Interval, since *core.Instant, now core.Instant) {
	if *since != 0 {
		took := since.Until(now)
		r.observe(func(o Observer, name string) { o.ObserveDuration(name, what, took) })
	}
	*since = 0
}

// leaderlessSince returns since when no candidate acts according to the record. It is zero if a candidate acts or the
// record is unknown. See Leaderless.
func (r *reporter) leaderlessSince(c *change) core.Instant {
	now := c.in.Now.Mono
	s := &c.after
	switch until := r.core.ActsUntil(s); {
	case s.Known == core.Unread || now < until:
		return 0
	case until == 0:
		return now
	default:
		return until // the end of the lease
	}
}
