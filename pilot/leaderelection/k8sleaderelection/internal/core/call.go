package core

// Call is the API call in flight.
type Call struct {
	Op        Op
	Sent      ClockReading
	Until     Instant // the answer is of no use later
	Base      uint64  // version that guards the write
	Learned   uint32  // State.Learned when the call was sent
	Record    Record
	Marker    bool // the write has the own marker
	BeforeGap bool // a Read that was sent before the present watch began
}

// Succeeded reports whether the input is the successful reply to the call. A write that did not change the
// version does not count.
func (c Call) Succeeded(in Input) bool {
	return in.Kind == Replied && in.Result == OK && (c.Op == Read || in.Snap.Version != c.Base)
}

// usefulUntil returns until when the answer of a call that is sent now is of use. A slow answer is not a dead connection, so
// a leader waits until its validity ends. It reads for half of that time, so that a write can follow.
func (c Config) usefulUntil(s State, op Op, now ClockReading) Instant {
	switch {
	case s.Phase == Releasing:
		return s.Drain.Until
	case s.Gate() == Validity{}:
		return now.Mono.After(c.Validity)
	case op == Read:
		return now.Mono.After(s.Validity.Left(now) / 2)
	}
	return now.Mono.After(s.Validity.Left(now))
}

// patienceShare is the divisor of RetryPeriod for a call that a more important one waits for. A nominee has one RetryPeriod.
const patienceShare = 2

// decideFlight returns until when the call in flight is of use. The loop cancels it then, and its reply is Unknown.
func (c Config) decideFlight(s State, now ClockReading, a Action) Action {
	a.Until = s.Flight.Until
	waits := c.callDelaysEnd(s)
	if !waits && c.superseded(s) {
		next := s
		next.Flight = Call{}
		b := c.decide(next, now)
		waits = b.Op != NoOp
		a = a.wake(b.Wake)
	}
	if waits {
		a.Until = min(a.Until, s.Flight.Sent.Mono.After(c.Retry/patienceShare))
	}
	if a.Until > now.Mono {
		a = a.wake(a.Until)
	}
	return a.withReason(InFlight)
}

// callDelaysEnd reports whether the elector could stop or release now without the call in flight. Only a write that may have
// to be released is worth the wait.
func (c Config) callDelaysEnd(s State) bool {
	switch s.Phase {
	case Following:
		return s.Stopping || s.Flight.Op == Renew
	case Settling:
		return s.Stopping
	case Draining:
		return s.Stopping && s.Drain.Overdue
	case Releasing:
		return s.Flight.Op == Renew
	case Leading, Done:
	}
	return false
}

// superseded reports whether the lock has changed since the call was sent, so that its answer shows nothing new. An own
// acquisition that is stored needs its reply: only that has the version of its first write.
func (c Config) superseded(s State) bool {
	call := s.Flight
	switch {
	case s.Known != Current || s.Learned == call.Learned:
		return false
	case call.Op == Read:
		return true
	}
	return s.Snap.Version != call.Base && !(call.Op == Acquire && s.Snap.Record.Holder == c.Self && s.Own.wrote(s.Snap))
}
