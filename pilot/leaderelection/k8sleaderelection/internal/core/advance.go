package core

import "incumbent.dev/incumbent/internal/record"

// maxBackOffShift limits the back-off after step-downs in a row.
const maxBackOffShift = 5

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

func (c Config) advanceFollowing(s State, now ClockReading) State {
	switch {
	case c.ownsTerm(s):
		s.BeganAt = now.Mono
		s.Requesting.Count = 0
		if s.Marked {
			return s.enter(Leading, Acquired)
		}
		return s.enter(Settling, EarlierHolderMayAct)
	case s.Term != Term{}:
		s.Term, s.Validity, s.Marked = Term{}, Validity{}, false // the record changed before the reply arrived
		return s
	case !s.Stopping || s.Flight.Op != NoOp:
		return s
	case c.Release && (s.Own.AcquireUnknown || c.releasable(s)) && now.Mono >= s.Earlier.Until:
		// Before that, the record may be older, from a restored store.
		s.Drain.Until = now.Mono.After(c.Validity)
		return s.enter(Releasing, Stopped)
	}
	return s.enter(Done, Stopped)
}

func (c Config) advanceSettling(s State, now ClockReading) State {
	switch {
	case !c.ownsTerm(s):
		return c.follow(s, now, c.lossReason(s))
	case s.Stopping && s.Flight.Op == NoOp:
		return s.enter(Done, LeftToExpire)
	case s.Barred && s.Flight.Op == NoOp:
		return c.follow(s, now, LeftToExpire)
	case s.Marked && !s.Stopping && !s.Barred:
		return s.enter(Leading, Settled)
	}
	return s
}

func (c Config) advanceLeading(s State, now ClockReading) State {
	switch lost := c.lost(s, now); {
	case lost != NotLost:
		return c.lose(s, now, lost)
	case s.Stopping:
		return c.drain(s, now, Stopped)
	case s.Barred:
		return c.drain(s, now, BarredFromLock)
	case s.Drain.StepDown:
		return c.drain(s, now, SteppedDown)
	case s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted:
		// The acceptance is stored, so other candidates know the next leader.
		return c.drain(s, now, HandingOver)
	case c.prefersOther(s, now.Mono) && c.Coordinated:
		s.Drain.HandOver = true
		return c.drain(s, now, HandingOver)
	case c.prefersOther(s, now.Mono):
		s.Drain.StepDown = true // the coordinator names the next holder
		return c.drain(s, now, Yielding)
	}
	return s
}

// drain cancels the run functions while the lease is kept.
func (c Config) drain(s State, now ClockReading, why Reason) State {
	s.Drain.Until = now.Mono.After(c.StopLimit)
	return s.enter(Draining, why)
}

// lost returns how the term has lost its right to act.
func (c Config) lost(s State, now ClockReading) Loss {
	switch {
	case !c.ownsTerm(s):
		return RecordLost
	case s.Validity.Left(now) <= 0:
		return ValidityLost
	}
	return NotLost
}

// lose ends the right to act for good. The record is renewed until the run functions have returned or exceeded
// their limit, because another leader must not start while they run.
func (c Config) lose(s State, now ClockReading, lost Loss) State {
	why := ValidityEnded
	if lost == RecordLost {
		why = c.lossReason(s)
	}
	s.Drain.Lost = lost
	s.Validity = Validity{}
	if !s.Drain.Overdue { // an exceeded limit is not extended
		s.Drain.Until = now.Mono.After(c.DrainLimit)
	}
	s.Stopping = s.Stopping || c.OneCycle
	return s.enter(Draining, why)
}

func (c Config) advanceDraining(s State, now ClockReading) State {
	switch lost := c.lost(s, now); {
	case s.Drain.Lost == NotLost && lost != NotLost:
		return c.lose(s, now, lost)
	case s.Drain.Lost == ValidityLost && lost == RecordLost:
		s.Drain.Lost = RecordLost
		return s
	case !s.Drain.HandOver && lost != RecordLost && s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted:
		s.Drain.HandOver = true
		s.Drain.CoolDown = c.coolDown(s)
		return s
	case s.Running && now.Mono >= s.Drain.Until && s.Stopping && s.Flight.Op == NoOp:
		s.Drain.Overdue = true
		return s.enter(Done, DrainStuck)
	case s.Running:
		s.Drain.Overdue = now.Mono >= s.Drain.Until
		return s
	case (s.Drain.StepDown || s.Drain.HandOver || s.Barred || s.Stopping && c.Release) && c.releasable(s):
		s.Drain.Until = now.Mono.After(c.Validity)
		return s.enter(Releasing, DrainedAll)
	}
	return c.follow(s, now, s.Why)
}

func (c Config) advanceReleasing(s State, now ClockReading) State {
	if s.Term != (Term{}) && !c.ownsTerm(s) {
		s.Drain.Lost = RecordLost
	}
	gone := !s.Known.Outdated() && !c.releasable(s)
	if s.Flight.Op != NoOp || !gone && now.Mono < s.Drain.Until {
		return s
	}
	return c.follow(s, now, c.releaseReason(s, gone))
}

// releaseReason returns what happened to the lock. A lock of another holder was not necessarily released.
func (c Config) releaseReason(s State, gone bool) Reason {
	switch {
	case !gone:
		return LeftToExpire
	case s.Drain.Sent:
		return Released
	case s.Term == Term{}:
		return Stopped // it was never acquired
	}
	return c.lossReason(s)
}

// releasable reports whether the own record may be released: its run functions have returned, and this process
// has acted in the term. Without that, another process may act.
func (c Config) releasable(s State) bool {
	return s.Drain.Lost != RecordLost && s.Snap.Record.Holder == c.Self && s.wrote(s.Snap) && !s.Own.Duplicate &&
		!s.Running && (s.Snap.Acting() || s.Marked && c.ownsTerm(s))
}

// follow ends the term and returns to Following.
func (c Config) follow(s State, now ClockReading, why Reason) State {
	if s.BeganAt.Until(now.Mono) > c.Lease {
		s.BackOff.Steps = 0
	}
	if s.Drain.StepDown {
		s.BackOff.Until = now.Mono.After(c.Retry << min(s.BackOff.Steps, maxBackOffShift))
		s.BackOff.Steps = min(s.BackOff.Steps+1, maxBackOffShift)
	}
	if s.Drain.CoolDown > 0 {
		s.BackOff.CoolDown = now.Mono.After(s.Drain.CoolDown)
	}
	if s.Own.Duplicate {
		s.BackOff.Until = now.Mono.After(c.Lease)
	}
	s.Term = Term{}
	s.Validity = Validity{}
	s.Drain = Drain{}
	s.Marked = false
	s.GiveWay = false
	s.Requesting.Wanted = false
	s.Stopping = s.Stopping || c.OneCycle
	s = s.enter(Following, why)
	if s.Stopping && s.Flight.Op == NoOp {
		return s.enter(Done, why)
	}
	return s
}

// lossReason returns why the record no longer belongs to the term.
func (c Config) lossReason(s State) Reason {
	snap := s.Snap
	switch {
	case !snap.Exists || snap.UID != s.Term.UID:
		return LockDeleted
	case snap.Content == record.Unreadable:
		return RecordUnreadable
	case snap.Version < s.Term.Token:
		return HistoryRewound
	case snap.Content == record.Missing || snap.Record.Holder == "":
		return RecordEmptied
	case snap.ByCoordinator():
		return Superseded // a named holder is not this term
	case snap.Record.Holder == c.Self:
		return IdentityConflict
	}
	return Superseded
}

func (s State) enter(p Phase, why Reason) State {
	s.Phase = p
	s.Why = why
	return s
}
