package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// JitterFactor is the factor of client-go: a poll is due after RetryPeriod times 1 to 2.2.
const JitterFactor = 1.2

// absorb updates the knowledge from one input. It changes no phase.
func (c Config) absorb(s State, in Input) State {
	if in.Kind != Seen && in.Kind != Replied {
		s.Beats = in.Beats
	}
	switch in.Kind {
	case Tick:
	case Seen:
		// A late event does not delay the next poll.
		if !s.outdated(in.Snap) {
			s = c.pollAfter(s, in)
			s = c.observe(s, in)
		}
	case Replied:
		s = c.replied(s, in)
	case DefaultChanged:
		s = s.defaultChanged(in.Default)
	case Watching:
		if in.Gap && s.Known != Unread {
			s.Known = StaleGap
			s.Flight.BeforeGap = s.Flight.Op == Read
		}
		s.Watch = true
		s = c.pollAfter(s, in)
	case Unwatched:
		s.Watch = false
		s = c.pollAfter(s, in)
	case Drained:
		s.Running = false
	case StepDown:
		if s.Phase == Leading {
			s.Drain.StepDown = true
		}
	case Stop:
		s.Stopping = true
	case Fitness:
		s.Unfit = in.Unfit
	case Bar:
		s.Barred = in.Barred
	case Coordinator:
		if !in.Absent {
			s.Absent = 0
		} else if s.Absent == 0 {
			s.Absent = max(1, in.Now.Mono)
		}
	}
	return s
}

func (s State) defaultChanged(to DefaultRevision) State {
	if to != s.Default {
		s.Displaced = Displaced{}
		s.Requesting.NotBefore = 0
		s.Requesting.Count = 0
	}
	s.Default = to
	return s
}

// pollAfter sets the next poll. With a watch it is due after two silent RetryPeriods, because a live holder
// would have written.
func (c Config) pollAfter(s State, in Input) State {
	wait := c.Retry + time.Duration(float64(c.Retry)*JitterFactor*float64(in.Jitter)/256)
	s.PollAt = in.Now.Mono.After(wait)
	if s.Watch {
		s.PollAt = s.PollAt.After(c.Retry)
	}
	return s
}

// outdated reports whether a watch event is older than the known snapshot.
func (s State) outdated(snap Snapshot) bool {
	if s.Known == Unread {
		return false
	}
	return snap.Version < s.Snap.Version || snap.Version == s.Snap.Version && !s.Snap.Exists
}

// observe processes a snapshot. Only a change of the record restarts the lease of its holder.
func (c Config) observe(s State, in Input) State {
	snap := in.Snap
	now := in.Now.Mono
	snap.Annotations.Nominated = nominationIn(s.Snap, snap)
	if !snap.Exists {
		// So a late event from before the deletion differs from a new object.
		snap.Version = max(snap.Version, s.Snap.Version)
	}
	changed := s.Known == Unread || !record.SameRecord(s.Snap, snap) || snap.Version < s.Snap.Version
	follows := in.Kind == Seen && s.Known == Current && snap.ByCoordinator() && snap.UID == s.Snap.UID
	if s.Known != Unread && changed {
		s.Failed = c.failedNominees(s, snap, now)
		s = c.displaced(s, snap, now, follows)
		s.Own.Duplicate = c.isDuplicate(s, snap)
	}
	s = c.since(c.countIgnored(s, snap, now), snap, now, changed)
	if hasFormer(snap, c.Self) && !(snap.Record.Holder == c.Self && s.wrote(snap)) && !(follows && snap.Annotations.Marker == s.Snap.Annotations.Marker) {
		// It is recorded here because an edit may remove the marker. For a leader that this process displaced,
		// see sent.
		s = s.addEarlier(s.Since.Former.After(c.lease(snap.Record)))
	}
	if snap.Exists && snap.Content == record.Readable {
		s.Count = snap.Record.Transitions
	}
	s.Beats = in.Beats
	s.CoordinatorSeen = s.CoordinatorSeen || snap.ByCoordinator()
	if s.Snap.Version != snap.Version {
		s.Own.Unseen = 0
	}
	if snap.Held() && snap.Record.Holder == c.Self && s.wrote(snap) {
		s.Own.Acked = snap.Record.Renewed
	}
	if s.Known != StaleGap {
		s.Known = Current
	}
	s.Own.AcquireUnknown = false
	s.Snap = snap
	s.Learned++
	if changed {
		s = c.withoutPauses(s)
	}
	return s
}

// since records the time of changes.
func (c Config) since(s State, snap Snapshot, now Instant, changed bool) State {
	if snap.Idle() && (s.Known == Unread || !s.Snap.Idle()) {
		s.Since.Idle = now
		if s.Snap.Held() {
			s.Since.Idle = min(now, c.ExpiresAt(s))
		}
	}
	if changed {
		s.Since.Record = now
	}
	if snap.Preferred != s.Snap.Preferred {
		s.Since.Preferred = now
		s.GiveWay = snap.Held() && snap.Record.Holder == c.Self && s.wrote(snap)
	}
	if snap.Annotations.Request.Renewed(s.Snap.Annotations.Request) {
		s.Since.Request = now
	}
	if snap.Annotations.Hold != s.Snap.Annotations.Hold {
		s.Since.Hold = now
	}
	if !hasFormer(s.Snap, c.Self) || s.Snap.Annotations.Marker != snap.Annotations.Marker || snap.Version < s.Snap.Version {
		s.Since.Former = now
	}
	return s
}

// displaced records until when the present holder may act, if next shows that its term did not end well. A
// watch shows each change in order, so a nomination by a coordinator that follows by a watch event replaces
// exactly the known record. Without a watch, renewals may have been missed.
func (c Config) displaced(s State, next Snapshot, now Instant, follows bool) State {
	// After a restore, a nominee may have acted before.
	unchanged := record.SameHolder(s.Snap, next) && !next.Nominated() && next.Version >= s.Snap.Version
	if unchanged || endedWell(s.Snap, next) {
		return s
	}
	if away := s.Earlier.Away; !s.Snap.Exists && next.Acting() && next.Record.Holder == away.Holder && s.Earlier.Until == away.Until {
		// The leader whose lock was deleted acts in the new one, and there was no other reason to wait since.
		s.Earlier.Until = s.Earlier.Away.Prior
		s.Earlier.Away = Away{}
	}
	until := c.mayActUntil(s)
	if s.Snap.Nominated() && s.Snap.Record.Holder != c.Self && (!(next.Held() && next.UID == s.Snap.UID) || next.ByCoordinator() && !follows) {
		// The first own write of the nominee may have been missed.
		until = c.ExpiresAt(s).After(c.PeerGrace)
	}
	acquired := next.Held() && next.UID == s.Snap.UID && next.Version > s.Snap.Version &&
		next.Record.Transitions >= after(s.Snap.Record.Transitions) || // a lower number is a restore
		follows && next.Version > s.Snap.Version
	switch {
	case until == 0:
	case acquired && next.Acting():
		until = 0 // the new leader has waited for it
	case s.Snap.Acting() && s.Snap.Record.Holder == next.Record.Holder && next.Acting() && next.Version > s.Snap.Version:
		until = 0 // it acts in a recreated lock, so its previous run functions have ended
	case !acquired:
		// It may have renewed until now without being observed.
		until = until.After(s.Since.Record.Until(now))
	}
	if until > s.Earlier.Until && !next.Exists && s.Snap.Acting() {
		s.Earlier.Away = Away{Holder: s.Snap.Record.Holder, Prior: s.Earlier.Until, Until: until}
		s.Earlier.Until = until
	} else {
		s = s.addEarlier(until)
	}
	if s.Snap.Held() && s.Snap.Record.Holder == c.Self && s.wrote(s.Snap) && next.Held() {
		s.Displaced = c.displacement(s, next, now)
	}
	return s
}

// displacement returns Displaced after next displaced this candidate. Two candidates with different defaults
// outrank each other. Without a pause they would alternate.
func (c Config) displacement(s State, next Snapshot, now Instant) Displaced {
	d := s.Displaced
	if s.Phase == Leading {
		d.Times = 0
	}
	return Displaced{
		NotBefore: now.After(c.preemptPause(d.Times)),
		Times:     min(d.Times+1, maxBackOffShift),
		ByEqual:   d.ByEqual || s.Phase != Following && next.Record.Key == c.Key,
	}
}

// addEarlier records that a holder may act until then, even if the leader that is away returns.
func (s State) addEarlier(until Instant) State {
	s.Earlier.Until = max(s.Earlier.Until, until)
	if s.Earlier.Away != (Away{}) {
		s.Earlier.Away.Prior = max(s.Earlier.Away.Prior, until)
	}
	return s
}

// preemptPause returns how long a candidate that was displaced n times in a row does not preempt: first long
// enough for both to learn the new default, then long enough for the other to settle.
func (c Config) preemptPause(n uint8) time.Duration {
	if n == 0 {
		return c.Retry
	}
	return (c.Lease + c.PeerGrace + c.Retry) << (n - 1)
}

// isDuplicate reports whether another live process writes records with this identity.
func (c Config) isDuplicate(s State, next Snapshot) bool {
	// Only a process with this identity writes its marker.
	appeared := next.Acting() && next.Version >= s.Snap.Version
	changed := record.SameHolder(s.Snap, next) && s.Snap.Record != next.Record && !next.Nominated()
	return next.Held() && next.Record.Holder == c.Self && !s.wrote(next) && (s.Own.Duplicate || changed || appeared)
}

// replied processes the end of the call in flight.
func (c Config) replied(s State, in Input) State {
	call := s.Flight
	s.Flight = Call{}
	if in.Result == OK && !call.Succeeded(in) {
		in.Result = Unknown
	}
	if in.Result != OK {
		s = c.failed(s, call, in)
		if call.Sent.Mono < s.Since.Record {
			s = c.withoutPauses(s) // it was nominated during the call
		}
		return s
	}
	s = c.pollAfter(s, in)
	s.Requesting.AnsweredAt = in.Now.Mono
	*s.Effort.of(call.Op) = Effort{}
	// A reply to a call that was sent after the last change is newer, even with a lower version: a store can
	// be restored.
	if in.Snap.Version >= s.Snap.Version || call.Learned == s.Learned {
		if call.Op == Read && s.Known == StaleGap && !call.BeforeGap {
			s.Known = Stale
		}
		s = c.observe(s, in)
	}
	return c.acknowledged(s, call, in)
}

// acknowledged processes a stored write. Validity counts from when the request was sent.
func (c Config) acknowledged(s State, call Call, in Input) State {
	if call.Op != Acquire && call.Op != Renew {
		return s
	}
	if call.Op == Acquire {
		s.Term = Term{UID: in.Snap.UID, Transitions: call.Record.Transitions, Token: in.Snap.Version}
	}
	s.Own.Renewed = call.Sent.Mono
	if !c.ownsTerm(s) || s.Drain.Lost != NotLost {
		return s
	}
	s.Validity = call.Sent.Plus(c.Validity)
	if call.Op == Acquire && s.Earlier.Until > s.Earlier.SettleAt {
		// Creating a lock has no guard. Another candidate created and deleted a lock while this request was in
		// flight, so this candidate has to settle.
		s.Earlier.SettleAt = s.Earlier.Until
		s.Own.Renewed = 0
		return s
	}
	s.Marked = s.Marked || call.Marker
	return s
}
