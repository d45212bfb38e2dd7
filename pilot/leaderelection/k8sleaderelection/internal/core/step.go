package core

import (
	"slices"
	"strings"
	"time"
)

// Step takes one input and says what should now be true.
func (c Config) Step(s State, in Input) (State, Action) {
	if s.SyncBy == 0 {
		s.SyncBy = in.Now.Mono.After(c.SyncWait)
	}
	s = c.absorb(s, in)
	s = c.advance(s, in.Now)
	a := c.decide(s, in.Now)
	return c.sent(s, a, in.Now), a
}

// sent notes what the action sets in motion. What earlier holders may still do is
// noted here, when the write is sent: our own write can come back by the watch
// before its reply, and would then hide whom it displaced.
func (c Config) sent(s State, a Action, now ClockReading) State {
	s.Running = s.Running || a.Run
	if a.Op == NoOp {
		return s
	}
	s.Flight = Call{
		Op: a.Op, Sent: now, Base: a.Base.Version, Learned: s.Learned,
		Record: a.Record, Marker: a.Annotations.Marker.matches(a.Record) || a.Annotations.Successor && a.Record.Holder == Successors && now.Mono >= c.settledAt(s),
	}
	if a.Op == SendRequest {
		s.Requesting.Wanted = true
		s.Requesting.NotBefore = now.Mono.After(min(c.Lease, c.Retry<<min(s.Requesting.Count, maxBackOffShift)))
		s.Requesting.Count++
		return s
	}
	s.Drain.Sent = s.Drain.Sent || a.Op == Release || a.Op == HandOver
	if a.Op == Acquire || a.Op == Renew {
		// Not of a release: what another process writes in our name over the same record
		// can get the same stamp, and would then seem to be ours.
		if a.Record.Renewed != s.Own.Stamps[0] {
			s.Own.Stamps = [4]Stamp{a.Record.Renewed, s.Own.Stamps[0], s.Own.Stamps[1], s.Own.Stamps[2]}
		}
		s.Own.Unseen = min(s.Own.Unseen+1, uint8(len(s.Own.Stamps)))
	}
	if a.Op == Acquire {
		s.Earlier.SettleAt = c.settledAt(s)
		// Whatever becomes of this write or of the lock: they may still act.
		s.Earlier.Until = max(s.Earlier.Until, s.Earlier.SettleAt)
	}
	return s
}

// nextStamp is a stamp above the recorded one and above all of ours: after a restore of
// the store, bytes that a candidate saw before would look to it like no change at all.
func (s State) nextStamp(wall int64) Stamp {
	return nextStamp(max(s.Snap.Record.Renewed, s.Own.Stamps[0]), wall)
}

// ownStamp is nextStamp for a record of our own. Of a write that was not answered only one
// for each version can have been stored, or can be yet. When as many as we remember have
// been tried, the next is the last one again, byte for byte: what is stored in the end is
// known for ours.
func (s State) ownStamp(wall int64) Stamp {
	if int(s.Own.Unseen) == len(s.Own.Stamps) && s.Own.Stamps[0] != s.Snap.Record.Renewed {
		return s.Own.Stamps[0]
	}
	return s.nextStamp(wall)
}

// lease is how long the recorded holder may go without a write: the longer of its
// lease and ours, up to a bound, so that an absurd record cannot lock everybody out.
func (c Config) lease(r Record) time.Duration {
	return max(c.Lease, min(r.Lease, c.LeaseBound()))
}

// LeaseBound is the longest lease of another that counts.
func (c Config) LeaseBound() time.Duration { return max(10*c.Lease, time.Hour) }

// ExpiresAt is when the recorded holder's lease has run out by our own clock.
func (c Config) ExpiresAt(s State) Instant {
	return s.Since.Record.After(c.lease(s.Snap.Record))
}

// mayActUntil is the last instant at which the holder that the snapshot shows may
// act, or zero when nobody there can be acting.
func (c Config) mayActUntil(s State) Instant {
	snap := s.Snap
	switch mine := snap.Record.Holder == c.Self; {
	case snap.Exists && snap.Content == Unreadable:
		return c.ExpiresAt(s)
	case !snap.Held() || snap.Nominated(), // nobody, or somebody who has not written itself yet
		c.Successor && snap.bySuccessors(), // they act with us
		// Our own drained term; or one of a process that had our identity before us,
		// had begun to act, and has ended.
		mine && !s.Own.Duplicate && (s.wrote(snap) || snap.Acting()):
		return 0
	case mine || snap.Acting() && !c.ignoresRequests(s):
		return c.ExpiresAt(s)
	}
	return c.ExpiresAt(s).After(c.PeerGrace)
}

// ActsUntil is until when the recorded holder acts, as far as the record tells; zero: nobody does. Of ourselves we know it.
func (c Config) ActsUntil(s State) Instant {
	if !s.Snap.Held() || s.Snap.Nominated() || s.Snap.Record.Holder == c.Self && s.Phase != Leading && s.Phase != Draining {
		return 0
	}
	return c.ExpiresAt(s)
}

// settledAt is from when on we may act if we became holder now.
func (c Config) settledAt(s State) Instant {
	if c.Immediate && s.Snap.Held() && !s.Snap.hasFormer(c.Self) {
		return 0
	}
	return max(s.Earlier.Until, c.mayActUntil(s))
}

// wrote reports whether this process wrote the record that snap shows. Stamps are whole seconds of
// some writer's clock: who nominates us can have used one of ours. But nobody nominates itself.
func (s State) wrote(snap Snapshot) bool {
	stamp := snap.Record.Renewed
	return stamp != 0 && !snap.Nominated() && (stamp == s.Own.Acked || slices.Contains(s.Own.Stamps[:], stamp))
}

// ours reports whether the record, as far as we know, is that of our present term, or the one that
// all successors keep, in the term that we joined.
func (c Config) ownsTerm(s State) bool {
	snap := s.Snap
	if s.Drain.Lost == RecordLost || s.Term == (Term{}) || !snap.Held() || snap.UID != s.Term.UID ||
		snap.Record.Transitions != s.Term.Transitions || snap.Version < s.Term.Token {
		return false
	}
	return c.Successor && snap.bySuccessors() || !snap.Halves.isHalf() && snap.Record.Holder == c.Self && s.wrote(snap)
}

// outranks reports whether we may take the lock from the live holder it shows.
func (c Config) outranks(s State) bool {
	if c.External {
		return s.Beats && !(s.Displaced.ByEqual && s.Snap.Record.Key == c.Key)
	}
	return c.Ranked && Outranks(c.Key, s.Snap.Record.Key, s.Default)
}

// highest reports whether no candidate can outrank us, as far as we know.
func (c Config) isHighestRank(s State) bool {
	rev, remote := strings.CutPrefix(c.Key, RemotePrefix)
	return !c.Ranked || !remote && (s.Default.Revision == "" || rev == s.Default.Revision)
}
