package core

// Step processes one input and returns the new state and the desired state.
func (c Config) Step(s State, in Input) (State, Action) {
	if s.SyncBy == 0 {
		s.SyncBy = in.Now.Mono.After(c.SyncWait)
	}
	s = c.absorb(s, in)
	s = c.advance(s, in.Now)
	a := c.decide(&s, in.Now)
	if a.Op != NoOp {
		a.Until = c.usefulUntil(&s, a.Op, in.Now)
	}
	return c.sent(s, a, in.Now), a
}

// absorb updates the topics from one input. It changes no phase.
func (c Config) absorb(s State, in Input) State {
	if in.Kind != Seen && in.Kind != Replied {
		s.Beats = in.Beats
	}
	switch in.Kind {
	case Tick:
	case Seen:
		// A late event does not delay the next poll.
		if s.Shows(in) {
			s.Sight = c.pollAfter(s.Sight, in)
			s = c.observe(&s, in)
		}
	case Replied:
		s = c.replied(s, in)
	case DefaultChanged:
		s = s.defaultChanged(in.Default, in.Now.Mono)
	case Watching, Unwatched:
		s = c.watching(s, in)
	case Drained:
		s.Running = false
	case StepDown:
		s.Drain.StepDown = s.Drain.StepDown || s.Phase == Leading
	case Stop:
		s.Stopping = true
	case Fitness:
		s.Unfit = in.Unfit
	case Bar:
		s.Barred = in.Barred
	case Coordinator:
		s.Absent = in.Absent
		s.Alone = s.Alone && in.Absent
	}
	return s
}

// observe shows a snapshot to each topic. A topic compares it with the state before, so the order of the topics does not
// matter. Only the pauses of a nominee depend on the state after.
func (c Config) observe(s *State, in Input) State {
	v := c.sighting(s, in)
	next := *s
	next.Beats = in.Beats
	next.Sight = s.Sight.observe(v)
	next.Own = c.observeOwn(s, v)
	next.Claim = c.observeClaim(s, v)
	next.Handover = c.observeHandover(s, v)
	next.Coordination = c.observeCoordination(s, v)
	next.Effort.Herd = c.observeHerd(s, v)
	if v.changed {
		next = c.withoutPauses(next)
	}
	return c.seenStored(next)
}

// defaultChanged ends the delays that depend on the default revision.
func (s State) defaultChanged(to DefaultRevision, now Instant) State {
	if to != s.Default {
		s.Displaced = Displaced{}
		s.Requesting.NotBefore = 0
		s.Requesting.Count = 0
		s.Since.Default = now
	}
	s.Default = to
	return s
}

// advance makes all phase changes that follow from the knowledge.
func (c Config) advance(s State, now ClockReading) State {
	for next := c.advanceOnce(s, now); next != s; next = c.advanceOnce(s, now) {
		s = next
	}
	return s
}

func (c Config) advanceOnce(s State, now ClockReading) State {
	switch s.Phase {
	case Following:
		return c.advanceFollowing(s, now)
	case Settling:
		return c.advanceSettling(s, now)
	case Leading:
		return c.advanceLeading(s, now)
	case Draining:
		return c.advanceDraining(s, now)
	case Releasing:
		return c.advanceReleasing(s, now)
	case Done:
	}
	return s
}

// decide returns the desired state. It reads only its arguments. The topics decide in this order: the sight reads an
// unknown lock, then a follower claims it (see decideFollowing), a holder renews it, or a releasing candidate hands it over.
func (c Config) decide(s *State, now ClockReading) Action {
	a := c.baseAction(s, now)
	switch {
	case s.Phase == Done:
		return a.withReason(s.Why)
	case s.Flight.Op != NoOp:
		return c.decideFlight(s, now, a)
	case s.Known == Unread || s.Known.Outdated() && !c.renewsStale(s, now):
		return c.read(s, now, a, NeedRead)
	case s.Known.Outdated() && now.Mono < s.Effort.Reads.Next:
		a = a.wake(s.Effort.Reads.Next)
	}
	switch s.Phase {
	case Following:
		return c.decideFollowing(s, now, a)
	case Settling, Leading, Draining:
		return c.decideHolding(s, now, a)
	case Releasing:
		return c.decideReleasing(s, now, a)
	case Done:
	}
	return a
}

// baseAction returns the part of the action that does not depend on the call.
func (c Config) baseAction(s *State, now ClockReading) Action {
	a := Action{Wake: Never, Gate: s.Gate(), Run: s.Phase == Leading}
	if a.Gate != (Validity{}) {
		a = a.wake(now.Mono.After(a.Gate.Left(now)))
	}
	if s.Phase == Draining && !s.Drain.Overdue || s.Phase == Releasing && s.Flight.Op == NoOp {
		a = a.wake(s.Drain.Until)
	}
	return a
}

// decideFollowing releases a nomination that this candidate did not request, requests a handover, or claims the lock, in this
// order.
func (c Config) decideFollowing(s *State, now ClockReading, a Action) Action {
	if c.unrequestedNomination(s, now.Mono) {
		at := c.settledAt(s)
		if now.Mono >= at {
			return c.decideReleasing(s, now, a).withReason(Unrequested)
		}
		a = a.wake(at)
	}
	switch at := max(c.requestFrom(s), c.backOffEnds(s)); {
	case at > now.Mono:
		a = a.wake(at)
	case now.Mono < c.ExpiresAt(s):
		return c.decideRequest(s, now, a)
	}
	return c.decideClaim(s, now, a)
}

// sent records the call of the action.
func (c Config) sent(s State, a Action, now ClockReading) State {
	s.Running = s.Running || a.Run
	if a.Op == NoOp {
		return s
	}
	s.Flight = Call{
		Op: a.Op, Sent: now, Until: a.Until, Base: a.Base.Version, Learned: s.Learned,
		Record: a.Record, Creates: a.Op == Acquire && !a.Base.Exists, Marker: a.Annotations.Marker.Matches(a.Record),
	}
	switch a.Op {
	case NoOp, Read:
	case SendRequest:
		s.Handover = c.requestSent(s.Handover, now.Mono)
	case Acquire:
		s.Alone = c.Uncoordinated(&s, now.Mono)
		s.Own = s.Own.sent(a.Record, ClockReading{})
		s.Claim = c.claimed(s, now.Mono)
	case Renew:
		s.Own = s.Own.sent(a.Record, now)
	case Release, HandOver:
		// No stamp: another process of this identity can write a record with the same stamp.
		s.Drain.Sent = true
	}
	return s
}
