package core

import (
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Step processes one input and returns the new state and the desired state.
func (c Config) Step(s State, in Input) (State, Action) {
	if s.SyncBy == 0 {
		s.SyncBy = in.Now.Mono.After(c.SyncWait)
	}
	s = c.absorb(s, in)
	s = c.advance(s, in.Now)
	a := c.decide(s, in.Now)
	return c.sent(s, a, in.Now), a
}

// sent records the call of the action. Earlier holders are recorded here because a watch event of the own
// write may arrive before its reply.
func (c Config) sent(s State, a Action, now ClockReading) State {
	s.Running = s.Running || a.Run
	if a.Op == NoOp {
		return s
	}
	s.Flight = Call{
		Op: a.Op, Sent: now, Base: a.Base.Version, Learned: s.Learned,
		Record: a.Record, Marker: a.Annotations.Marker.Matches(a.Record),
	}
	if a.Op == SendRequest {
		s.Requesting.Wanted = true
		s.Requesting.NotBefore = now.Mono.After(min(c.Lease, c.Retry<<min(s.Requesting.Count, maxBackOffShift)))
		s.Requesting.Count++
		return s
	}
	s.Drain.Sent = s.Drain.Sent || a.Op == Release || a.Op == HandOver
	if a.Op == Acquire || a.Op == Renew {
		// Not for a release: another process of this identity can write a record with the same stamp.
		if a.Record.Renewed != s.Own.Stamps[0] {
			s.Own.Stamps = [4]Stamp{a.Record.Renewed, s.Own.Stamps[0], s.Own.Stamps[1], s.Own.Stamps[2]}
		}
		s.Own.Unseen = min(s.Own.Unseen+1, uint8(len(s.Own.Stamps)))
	}
	if a.Op == Acquire {
		s.Earlier.SettleAt = c.settledAt(s)
		// Even if this write fails, the holders may act until then.
		s.Earlier.Until = max(s.Earlier.Until, s.Earlier.SettleAt)
	}
	return s
}

// nextStamp returns a stamp that is not below the recorded one and all own ones. A write that changes nothing
// else needs a greater one, because a write that changes no byte is not stored. After a restore, equal bytes would
// look unchanged to other candidates.
func (c Config) nextStamp(s State, wall int64) Stamp {
	recorded := s.Snap.Record.Renewed
	mine := s.Snap.Record.Holder == c.Self && !s.Snap.Nominated()
	switch {
	case !mine && s.Own.Stamps[0] <= recorded:
		return recorded.Next(wall, 0)
	case c.Resolution == 0:
		return max(recorded, s.Own.Stamps[0]).Next(wall, record.Second)
	}
	return max(recorded, s.Own.Stamps[0]).Next(wall, c.Resolution)
}

// ownStamp returns the stamp for an own record. Only one unanswered write can be stored for each version.
// After as many tries as are remembered, the last stamp is used again, so that the stored record is
// recognized.
func (c Config) ownStamp(s State, wall int64) Stamp {
	if int(s.Own.Unseen) == len(s.Own.Stamps) && s.Own.Stamps[0] != s.Snap.Record.Renewed {
		return s.Own.Stamps[0]
	}
	return c.nextStamp(s, wall)
}

// lease returns the longer of the recorded and the own lease, within a bound.
func (c Config) lease(r Record) time.Duration {
	return max(c.Lease, min(r.Lease, c.LeaseBound()))
}

// LeaseBound returns the longest lease of another holder that counts.
func (c Config) LeaseBound() time.Duration { return max(10*c.Lease, time.Hour) }

// ExpiresAt returns the expiry of the recorded lease by the own clock.
func (c Config) ExpiresAt(s State) Instant {
	return s.Since.Record.After(c.lease(s.Snap.Record))
}

// mayActUntil returns the last instant at which the recorded holder may act. Zero: it does not act.
func (c Config) mayActUntil(s State) Instant {
	snap := s.Snap
	switch mine := snap.Record.Holder == c.Self; {
	case snap.Exists && snap.Content == record.Unreadable:
		return c.ExpiresAt(s)
	case !snap.Held() || snap.Nominated(), // no holder, or a nominee that has not written yet
		// An own drained term, or the term of a previous process with this identity that had begun to act.
		mine && !s.Own.Duplicate && (s.wrote(snap) || snap.Acting()):
		return 0
	case mine || snap.Acting() && !c.ignoresRequests(s):
		return c.ExpiresAt(s)
	}
	return c.ExpiresAt(s).After(c.PeerGrace)
}

// ActsUntil returns until when the recorded holder acts. Zero: it does not act. For this candidate the phase
// counts.
func (c Config) ActsUntil(s State) Instant {
	if s.Snap.Idle() || s.Snap.Record.Holder == c.Self && s.Phase != Leading && s.Phase != Draining {
		return 0
	}
	return c.ExpiresAt(s)
}

// settledAt returns the earliest time at which this candidate may act if it acquired the lock now.
func (c Config) settledAt(s State) Instant {
	if c.Immediate && s.Snap.Held() && !hasFormer(s.Snap, c.Self) {
		return 0
	}
	return max(s.Earlier.Until, c.mayActUntil(s))
}

// wrote reports whether this process wrote the record. A nomination by another process may have an equal
// stamp.
func (s State) wrote(snap Snapshot) bool {
	stamp := snap.Record.Renewed
	return stamp != 0 && !snap.Nominated() && (stamp == s.Own.Acked || slices.Contains(s.Own.Stamps[:], stamp))
}

// ownsTerm reports whether the record belongs to the present term of this process.
func (c Config) ownsTerm(s State) bool {
	snap := s.Snap
	if s.Drain.Lost == RecordLost || s.Term == (Term{}) || !snap.Held() || snap.UID != s.Term.UID ||
		snap.Record.Transitions != s.Term.Transitions || snap.Version < s.Term.Token {
		return false
	}
	return snap.Record.Holder == c.Self && s.wrote(snap)
}

// outranks reports whether this candidate may acquire the lock of the live holder.
func (c Config) outranks(s State) bool {
	if c.External {
		return s.Beats && !(s.Displaced.ByEqual && s.Snap.Record.Key == c.Key)
	}
	return c.Ranked && Outranks(c.Key, s.Snap.Record.Key, s.Default)
}

// isHighestRank reports whether no candidate can outrank this one.
func (c Config) isHighestRank(s State) bool {
	rev, remote := strings.CutPrefix(c.Key, RemotePrefix)
	return !c.Ranked || !remote && (s.Default.Revision == "" || rev == s.Default.Revision)
}
