package core

import "time"

// Effort is how one kind of call has fared. Reads, writes and requests have one each: a
// read that succeeds says nothing about writes, and the other way round.
type Effort struct {
	Fails     uint8   // calls in a row that brought nothing
	Conflicts uint8   // writes in a row that met another version
	Base      uint64  // what the last of those was guarded by
	Next      Instant // none before
	Last      Instant // when one last failed
}

// Efforts are those of each kind of call.
type Efforts struct {
	Reads    Effort
	Writes   Effort // of everything but requests
	Requests Effort // of requests
}

// of is that of the operation's kind.
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

// failed takes in a call that brought nothing usable.
func (c Config) failed(s State, call Call, in Input) State {
	now, e := in.Now.Mono, s.Effort.of(call.Op)
	if e.Last.After(2*c.Lease) < now { // that was another trouble
		*e = Effort{}
	}
	// In conflict before, guarded by the version that it has now: the store was asked in between, and nobody else has
	// written. Then it is no other writer, but something that denies writes with that code, for as long as it will.
	denied := e.Conflicts > 0 && e.Base == call.Base
	if in.Result == Conflict && call.Op != Read && !denied {
		s = c.conflicted(s, call, in)
	} else {
		if denied {
			e.Fails = max(e.Fails, 1) // so was the first of them, as it turns out
		}
		e.Fails = min(e.Fails+1, maxFails)
		wait := c.pause(s, call.Op, e.Fails, in)
		if in.Result == Refused {
			wait = max(wait, min(in.RetryAfter, c.longestPause(s, call.Op, now)))
		}
		e.Next = now.After(wait)
	}
	e.Last = now
	if in.Result == Refused && call.Op != Read && s.Watch {
		return s // what we know of the lock is as good as before
	}
	if in.Result != Conflict {
		s.Effort.Reads.Next = max(s.Effort.Reads.Next, now.After(c.pause(s, Read, 1, in)))
	}
	if s.Known == Current {
		s.Known = Stale
	}
	s.Drain.Sent = s.Drain.Sent && in.Result == Unknown
	s.Own.AcquireUnknown = s.Own.AcquireUnknown || in.Result == Unknown && call.Op == Acquire
	return s
}

// conflicted takes in a write that met another version. The first is tried again as soon
// as the store was asked; where others write all the time, one tries no more than they do. A candidate
// without a watch asks after the pause: what it learned before would be as old as that when it writes.
func (c Config) conflicted(s State, call Call, in Input) State {
	e := s.Effort.of(call.Op)
	if e.Last.After(2*c.Retry) < in.Now.Mono {
		e.Conflicts = 0
	}
	e.Conflicts, e.Base, e.Next = min(e.Conflicts+1, maxFails), call.Base, 0
	switch {
	case e.Conflicts > 1 && s.Phase == Following && !s.Watch:
		s.Effort.Reads.Next = max(s.Effort.Reads.Next, in.Now.Mono.After(c.pause(s, Read, e.Conflicts-1, in)))
	case e.Conflicts > 1:
		e.Next = in.Now.Mono.After(c.pause(s, Read, e.Conflicts-1, in))
	case call.Op == SendRequest:
		s.Requesting.NotBefore = 0 // it met a renewal: that is no answer
	}
	return s
}

// maxFails bounds the counts: more makes no longer pause.
const maxFails = 12

// pause is how long to wait after so many failures in a row. A read, and a write of one
// that has something to lose, is tried again after a sixteenth of a RetryPeriod, and at the latest
// after a whole one. Others that cannot write need not try that often: after some failures
// their pause is a lease, as long as a crash takes.
func (c Config) pause(s State, op Op, fails uint8, in Input) time.Duration {
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

func (c Config) longestPause(s State, op Op, now Instant) time.Duration {
	if op == Read || c.mayLoseTerm(s, now) {
		return c.Retry
	}
	return c.Lease
}

// mayLoseTerm reports whether we have something to lose: a term in which we act or have acted or,
// while we settle, a lease that has not run out. Anybody may take the lock after that.
func (c Config) mayLoseTerm(s State, now Instant) bool {
	return s.Phase == Leading || s.Phase == Draining || s.Phase == Releasing || s.Phase == Settling && now < c.ExpiresAt(s)
}

// withoutPauses lifts the pauses of a nominee: it has a RetryPeriod to take the lock, before others do.
// Only what fails of that itself may delay it.
func (c Config) withoutPauses(s State) State {
	if c.IsNominee(s) {
		s.Effort.Reads.Next, s.Effort.Writes.Next = 0, 0
	}
	return s
}
