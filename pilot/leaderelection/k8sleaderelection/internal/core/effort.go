package core

import "time"

// Efforts has an Effort for each kind of call.
type Efforts struct {
	Reads    Effort
	Writes   Effort // all writes except requests
	Requests Effort // of requests
	Herd     Herd
}

// Effort is the success of one kind of call. Reads, writes and requests are separate: a successful read does
// not show that writes work.
type Effort struct {
	Fails     uint8   // failures in a row
	Conflicts uint8   // writes in a row that conflicted
	Base      uint64  // version that guarded the last of these
	Next      Instant // not before
	Last      Instant // last failure
}

// of returns the Effort of the kind of op.
func (e *Efforts) of(op Op) *Effort {
	switch op {
	case Read:
		return &e.Reads
	case SendRequest:
		return &e.Requests
	case NoOp, Acquire, Renew, Release, HandOver:
	}
	return &e.Writes
}

// replied processes the end of the call in flight.
func (c Config) replied(s State, in Input) State {
	call := s.Flight
	shows := s.Shows(in)
	s.Flight = Call{}
	if in.Result == OK && !call.Succeeded(in) {
		in.Result = Unknown
	}
	if in.Result != OK && call.Op == Renew && call.Sent.Mono == s.Own.Renewed {
		return s // it was seen stored
	}
	if in.Result != OK {
		if in.Result == Conflict && (call.Op == Acquire || call.Op == Renew) {
			s.Own = s.Own.rejected(call.Record)
		}
		s = c.failed(s, call, in)
		if call.Sent.Mono < s.Since.Record {
			s = c.withoutPauses(s) // it was nominated during the call
		}
		return s
	}
	s.Sight = c.pollAfter(s.Sight, in)
	s.Requesting.AnsweredAt = in.Now.Mono
	*s.Effort.of(call.Op) = Effort{}
	s.Effort.Herd = s.Effort.Herd.won(call.Op)
	if shows {
		if (call.Op == Read || call.Op == Renew) && s.Known == StaleGap && !call.BeforeGap {
			s.Known = Stale
		}
		s = c.observe(&s, in)
	} else if call.Op == Acquire {
		s.Displaced = c.displacedUnseen(&s, call, in)
	}
	return c.acknowledged(s, call, in)
}

// failed processes a call without a usable reply.
func (c Config) failed(s State, call Call, in Input) State {
	now := in.Now.Mono
	e := s.Effort.of(call.Op)
	if e.Last.After(2*c.Lease) < now || e.Fails == 0 && e.Last.After(2*c.Retry) < now { // an older problem
		*e = Effort{}
	}
	// If the version is still the same after a conflict, no other process has written. Then something rejects
	// writes with the code for conflicts.
	rejected := e.Conflicts > 0 && e.Base == call.Base
	if in.Result == Conflict && call.Op != Read && !rejected {
		s = c.conflicted(s, call, in)
	} else {
		if rejected {
			e.Fails = max(e.Fails, 1) // the first conflict was a rejection too
		}
		e.Fails = min(e.Fails+1, maxFails)
		wait := c.pause(&s, call.Op, e.Fails, in)
		if in.Result == Refused {
			wait = max(wait, min(in.RetryAfter, c.longestPause(&s, call.Op, now)))
		}
		e.Next = now.After(wait)
	}
	e.Last = now
	if in.Result == Refused && call.Op != Read && s.Watch {
		return s // the knowledge of the lock is not affected
	}
	if in.Result != Conflict {
		s.Effort.Reads.Next = max(s.Effort.Reads.Next, now.After(c.pause(&s, Read, 1, in)))
	}
	if s.Known == Current && !s.changedSince(call) {
		s.Known = Stale
	}
	s.Drain.Sent = s.Drain.Sent && in.Result == Unknown
	s.Own.AcquireUnknown = s.Own.AcquireUnknown || in.Result == Unknown && call.Op == Acquire
	return s
}

// conflicted processes a write that met another version. The first one is repeated after a read. Repeated
// conflicts wait. A follower waits before it reads, because its watch probably shows the other version. Without a watch,
// it waits after repeated conflicts.
func (c Config) conflicted(s State, call Call, in Input) State {
	e := s.Effort.of(call.Op)
	if e.Last.After(2*c.Retry) < in.Now.Mono {
		e.Conflicts = 0
	}
	e.Conflicts = min(e.Conflicts+1, maxFails)
	e.Base = call.Base
	e.Next = 0
	switch {
	case e.Conflicts == 1 && call.Op == SendRequest:
		s.Requesting.NotBefore = 0 // it met a renewal, which is not an answer
	case e.Conflicts > 1 && (s.Phase != Following || s.Watch):
		e.Next = in.Now.Mono.After(c.pause(&s, Read, e.Conflicts-1, in))
	}
	if s.Phase == Following && (s.Watch || e.Conflicts > 1) {
		s.Effort.Reads.Next = max(s.Effort.Reads.Next, in.Now.Mono.After(c.pause(&s, Read, max(1, e.Conflicts-1), in)))
	}
	return s
}

// maxFails limits the counts.
const maxFails = 12

// pause returns the wait after this number of failures in a row. Reads, and writes of a term that could be
// lost, wait a sixteenth to a whole RetryPeriod. Other writes wait up to a lease.
func (c Config) pause(s *State, op Op, fails uint8, in Input) time.Duration {
	wait := c.Retry / 16
	switch {
	case op == Read:
		wait <<= fails - 1
	case fails > 1 && c.mayLoseTerm(s, in.Now.Mono):
		wait <<= fails
	default:
		wait <<= 2 * (fails - 1)
	}
	wait = min(wait, c.longestPause(s, op, in.Now.Mono))
	return wait - wait/4*time.Duration(in.Jitter)/256
}

func (c Config) longestPause(s *State, op Op, now Instant) time.Duration {
	if op == Read || c.mayLoseTerm(s, now) {
		return c.Retry
	}
	return c.Lease
}

// mayLoseTerm reports whether a failed write can cost the term: the candidate leads or drains, or it settles
// and its lease has not expired.
func (c Config) mayLoseTerm(s *State, now Instant) bool {
	return s.Phase == Leading || s.Phase == Draining || s.Phase == Releasing || s.Phase == Settling && now < c.ExpiresAt(s)
}

// withoutPauses removes the pauses of a nominee, which has only one RetryPeriod to acquire the lock.
func (c Config) withoutPauses(s State) State {
	if c.IsNominee(&s) {
		s.Effort.Reads.Next = 0
		s.Effort.Writes.Next = 0
	}
	return s
}
