package k8sleaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// durations measures the intervals that a TermObserver is given. Each instant is the begin of
// one that is under way, and zero when none is.
type durations struct {
	drainSince, requestedSince, handingOverSince, leaderlessSince core.Instant
	// wantsSince is since when there is a reason to ask the leader for the lock, asked or not.
	wantsSince core.Instant
}

func (s *durations) pass(r *reporter, c *change) {
	s.waits(r.core.WantsHandover(c.after, c.in.Now.Mono), c.in.Now.Mono)
	if r.termObserver() == nil {
		s.handover(r, c) // which Status shows as well
		return
	}
	now, before, after := c.in.Now.Mono, &c.before, &c.after
	if after.Phase == core.Draining && before.Phase != core.Draining {
		s.drainSince = now
	}
	if !after.Running {
		r.observe(Drain, &s.drainSince, now)
	}
	s.handover(r, c)
	switch since := r.leaderlessSince(c); {
	case since == 0 && after.Known != core.Unread:
		r.observe(Leaderless, &s.leaderlessSince, now)
	case s.leaderlessSince == 0:
		s.leaderlessSince = since
	}
}

// waits takes in whether there is a reason to ask.
func (s *durations) waits(wants bool, now core.Instant) {
	switch {
	case !wants:
		s.wantsSince = 0
	case s.wantsSince == 0:
		s.wantsSince = now
	}
}

// handover: the challenger's part and the leader's.
func (s *durations) handover(r *reporter, c *change) {
	now := c.in.Now.Mono
	op := c.acknowledged()
	switch {
	case op == core.SendRequest && s.requestedSince == 0:
		s.requestedSince = c.before.Flight.Sent.Mono
	case c.after.Phase == core.Leading && c.before.Phase != core.Leading && r.claim == core.Nominated:
		r.observe(Handover, &s.requestedSince, now)
	}
	if !c.after.Requesting.Wanted && op != core.SendRequest && c.after.Phase == core.Following || c.after.Phase == core.Leading {
		s.requestedSince = 0 // it did not come to that
	}
	if c.beginsHandover() {
		s.handingOverSince = now
	}
	switch {
	case op == core.HandOver:
		r.observe(HandoverGiven, &s.handingOverSince, now)
	case !c.after.Drain.Kind.HandsOver() && c.after.Phase == core.Following:
		s.handingOverSince = 0
	}
}

// handoverSince is when the handover began that goes on now, zero when none does.
func (s *durations) handoverSince() core.Instant {
	if s.wantsSince != 0 {
		return s.wantsSince
	}
	return s.handingOverSince
}

// observe reports what has begun at the instant, if it has, and is over now.
func (r *reporter) observe(what Interval, since *core.Instant, now core.Instant) {
	if *since != 0 && r.termObserver() != nil {
		r.termObserver().ObserveDuration(r.le.config.Name, what, since.Until(now))
	}
	*since = 0
}

// leaderlessSince is since when nobody acts by what the record shows now, zero when
// somebody does or the record is not known. See Leaderless.
func (r *reporter) leaderlessSince(c *change) core.Instant {
	now, s := c.in.Now.Mono, &c.after
	switch until := r.core.ActsUntil(*s); {
	case s.Known == core.Unread || now < until:
		return 0
	case until == 0:
		return now
	default:
		return until // a lease that has run out did so then, whenever we look
	}
}
