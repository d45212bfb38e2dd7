package core

// Call is the API call in flight.
type Call struct {
	Op        Op
	Sent      ClockReading
	Until     Instant // the answer is of no use later
	Base      uint64  // version that guards the write
	Learned   uint32  // State.Learned when the call was sent
	Record    Record
	Creates   bool // the write is not guarded by a version
	Marker    bool // the write has the own marker
	BeforeGap bool // the call was sent before the present watch began
}

// Succeeded reports whether the input is the successful reply to the call. A write that did not change the
// version does not count.
func (c Call) Succeeded(in Input) bool {
	return in.Kind == Replied && in.Result == OK && (c.Op == Read || in.Snap.Version != c.Base)
}

// usefulUntil returns until when the answer of a call that is sent now is of use. A slow answer is not a dead connection, so
// a leader waits until its validity ends. It reads for half of that time, so that a write can follow, unless the read may show
// that a renewal was stored. It reads for a third if it can renew without the answer.
func (c Config) usefulUntil(s *State, op Op, now ClockReading) Instant {
	switch {
	case s.Phase == Releasing:
		return s.Drain.Until
	case s.Gate() == Validity{}:
		return now.Mono.After(c.Validity)
	case op == Read && s.Known == StaleGap && c.ownsTerm(s):
		return now.Mono.After(s.Validity.Left(now) / 3)
	case op == Read && s.Own.SentAt.Mono <= s.Own.Renewed:
		return now.Mono.After(s.Validity.Left(now) / 2)
	}
	return now.Mono.After(s.Validity.Left(now))
}

// decideFlight returns until when the call in flight is of use. The loop cancels it then, and its reply is Unknown.
func (c Config) decideFlight(s *State, now ClockReading, a Action) Action {
	a.Until = s.Flight.Until
	soon := s.Flight.Sent.Mono.After(c.Retry / 2) // a nominee has only a RetryPeriod
	switch ending := c.awaitsEnd(s); {
	case ending && s.Flight.Op == Acquire, s.Flight.Op == Renew && (s.Phase == Following || s.Phase == Releasing):
		// The answer is needed for the release. A slow one still arrives in time.
		a.Until = min(a.Until, s.Flight.Sent.Mono.After(c.Validity/2))
	case ending:
		a.Until = min(a.Until, soon)
	}
	if c.superseded(s) {
		next := *s
		next.Flight = Call{}
		if b := c.decide(&next, now); b.Op == NoOp {
			a = a.wake(b.Wake)
		} else {
			a.Until = min(a.Until, soon)
		}
	}
	if a.Until > now.Mono {
		a = a.wake(a.Until)
	}
	return a.withReason(InFlight)
}

// awaitsEnd reports whether only the call in flight keeps the elector from its end.
func (c Config) awaitsEnd(s *State) bool {
	return s.Stopping && (s.Phase == Following || s.Phase == Settling || s.Phase == Draining && s.Drain.Overdue)
}

// superseded reports whether the answer of the call in flight shows nothing new. An own acquisition that is stored needs its
// reply: only that has the version of its first write.
func (c Config) superseded(s *State) bool {
	stored := s.Flight.Op == Acquire && s.Snap.Record.Holder == c.Self && s.Own.wrote(s.Snap)
	return s.changedSince(s.Flight) && !stored
}

// changedSince reports whether the lock is known to have changed since the call was sent, so that a write of the call can not
// be stored any more. A creation can, if the lock was deleted again.
func (s *State) changedSince(call Call) bool {
	guarded := s.Snap.Exists || !call.Creates
	return s.Known == Current && s.Learned != call.Learned && (call.Op == Read || guarded && s.Snap.Version != call.Base)
}
