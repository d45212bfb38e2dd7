package core

import "time"

// JitterFactor is client-go's: a poll comes after RetryPeriod times 1 to 2.2.
const JitterFactor = 1.2

// absorb learns from one input. It chooses nothing and changes no phase.
func (c Config) absorb(s State, in Input) State {
	if in.Kind != Seen && in.Kind != Replied {
		s.Beats = in.Beats
	}
	switch in.Kind {
	case Tick:
	case Seen:
		// An event that is late says nothing of the present: it puts no poll off.
		if !s.outdated(in.Snap) {
			s = c.pollAfter(s, in)
			s = c.observe(s, in)
		}
	case Replied:
		s = c.replied(s, in)
	case DefaultChanged:
		if in.Default != s.Default {
			s.Displaced, s.Requesting.NotBefore, s.Requesting.Count = Displaced{}, 0, 0
		}
		s.Default = in.Default
	case Watching:
		if in.Gap && s.Known != Unread {
			s.Known, s.Flight.BeforeGap = StaleGap, s.Flight.Op == Read
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
			s.Drain.Kind = DrainToStepDown
		}
	case Stop:
		s.Stopping = true
	case Fitness:
		s.Unfit = in.Unfit
	case Coordinator:
		s.Absent = s.absence(in)
	}
	return s
}

// pollAfter sets the next poll. While a watch is up it comes only after two silent
// RetryPeriods, in which a live holder would have written twice.
func (c Config) pollAfter(s State, in Input) State {
	wait := c.Retry + time.Duration(float64(c.Retry)*JitterFactor*float64(in.Jitter)/256)
	s.PollAt = in.Now.Mono.After(wait)
	if s.Watch {
		s.PollAt = s.PollAt.After(c.Retry)
	}
	return s
}

// outdated reports whether a watch event is older than what we know.
func (s State) outdated(snap Snapshot) bool {
	if s.Known == Unread {
		return false
	}
	return snap.Version < s.Snap.Version || snap.Version == s.Snap.Version && !s.Snap.Exists
}

// observe takes in a snapshot. Only a change of the record restarts its holder's
// time: other people's labels are no renewal.
func (c Config) observe(s State, in Input) State {
	snap, now := in.Snap, in.Now.Mono
	snap.Annotations.Nominated = s.Snap.nominationIn(snap)
	if !snap.Exists {
		// So that an event from before the deletion is distinguished from a new object's.
		snap.Version = max(snap.Version, s.Snap.Version)
	}
	changed := s.Known == Unread || !sameRecord(s.Snap, snap) || snap.Version < s.Snap.Version
	follows := in.Kind == Seen && s.Known == Current && snap.ByCoordinator() && continues(s.Snap, snap)
	if s.Known != Unread && changed {
		s = c.displaced(s, snap, now, follows)
		s.Own.Duplicate = c.isDuplicate(s, snap)
	}
	s = c.since(c.countIgnored(s, snap, now), snap, now, changed)
	if snap.hasFormer(c.Self) && !(snap.Record.Holder == c.Self && s.wrote(snap)) && !(follows && snap.Annotations.Marker == s.Snap.Annotations.Marker) {
		// Noted here, because the marker can be taken away by an edit. Of the one that
		// we displaced ourselves more is known: see sent.
		s = s.addEarlier(s.Since.Former.After(c.lease(snap.Record)))
	}
	if snap.Exists && snap.Content == Readable {
		s.Count = snap.Record.Transitions
	}
	s.Beats = in.Beats
	if s.Snap.Version != snap.Version {
		s.Own.Unseen = 0
	}
	if snap.Held() && snap.Record.Holder == c.Self && s.wrote(snap) {
		s.Own.Acked = snap.Record.Renewed
	}
	if s.Known != StaleGap {
		s.Known = Current
	}
	s.Own.AcquireUnknown, s.Snap = false, snap
	s.Learned++
	if changed {
		s = c.withoutPauses(s)
	}
	return s
}

// since notes what is first seen now to be as it is.
func (c Config) since(s State, snap Snapshot, now Instant, changed bool) State {
	if changed {
		s.Since.Record = now
	}
	if snap.Annotations.Request.renewed(s.Snap.Annotations.Request) {
		s.Since.Request = now
	}
	if snap.Annotations.Hold != s.Snap.Annotations.Hold {
		s.Since.Hold = now
	}
	if !s.Snap.hasFormer(c.Self) || s.Snap.Annotations.Marker != snap.Annotations.Marker || snap.Version < s.Snap.Version {
		s.Since.Former = now
	}
	return s
}

// displaced notes until when the holder that the present snapshot shows may act,
// when next shows that its term has ended, and not well. A watch shows each change, in order: a coordinator's
// nomination that follows by one replaces the very record that we know, and no later renewal of it. It
// counts no term, so that without a watch nothing tells what was there in between.
func (c Config) displaced(s State, next Snapshot, now Instant, follows bool) State {
	// A holder that is nominated has acted before, if a store was put back in between.
	goesOn := sameHolder(s.Snap, next) && !next.Nominated() && next.Version >= s.Snap.Version
	if goesOn || endedWell(s.Snap, next) {
		return s
	}
	if away := s.Earlier.Away; !s.Snap.Exists && next.Acting() && next.Record.Holder == away.Holder && s.Earlier.Until == away.Until {
		// The leader whose lock was deleted acts in the next one, and nobody else has given a reason to wait since.
		s.Earlier.Until, s.Earlier.Away = s.Earlier.Away.Prior, Away{}
	}
	until := c.mayActUntil(s)
	if s.Snap.Nominated() && s.Snap.Record.Holder != c.Self && (!(next.Held() && continues(s.Snap, next)) || next.ByCoordinator() && !follows) {
		// Nobody has taken the lock from the nominee: its own first write may have been there, unseen.
		until = c.ExpiresAt(s).After(c.PeerGrace)
	}
	took := next.Held() && continues(s.Snap, next) && next.Version > s.Snap.Version &&
		next.Record.Transitions > s.Snap.Record.Transitions || // fewer: an older state came back
		follows && next.Version > s.Snap.Version
	switch {
	case until == 0:
	case took && (next.Acting() || c.Successor && s.Snap.Successor && next.bySuccessors()):
		until = 0 // who took the lock from it has waited for it, or for its waiter
	case s.Snap.Acting() && s.Snap.Record.Holder == next.Record.Holder && next.Acting() && next.Version > s.Snap.Version:
		until = 0 // it acts in a lock made anew: it has ended what it did in the one before
	case !took:
		// It may have renewed until now, without our having seen that.
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

// displacement is our Displaced after next has displaced us. While two do not agree on the
// default yet, each outranks the other: without a pause they would take the lock from each other
// as fast as the store allows.
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

// earlierMayAct notes that somebody may act until then, even if the leader that is away comes back.
func (s State) addEarlier(until Instant) State {
	s.Earlier.Until = max(s.Earlier.Until, until)
	if s.Earlier.Away != (Away{}) {
		s.Earlier.Away.Prior = max(s.Earlier.Away.Prior, until)
	}
	return s
}

// preemptPause is for how long one does not preempt who has displaced it, after n times in a
// row. At first it is long enough for both to learn of a new default. But they may disagree
// for as long as one's watch of it is down: then one leaves the other the time to settle.
func (c Config) preemptPause(n uint8) time.Duration {
	if n == 0 {
		return c.Retry
	}
	return (c.Lease + c.PeerGrace + c.Retry) << (n - 1)
}

// isDuplicate reports whether another live process writes records in our name: one of
// that name has changed, and it was not us.
func (c Config) isDuplicate(s State, next Snapshot) bool {
	// Nobody but a process of that name writes its marker.
	appeared := next.Acting() && next.Version >= s.Snap.Version
	// The same record that now stands in the other of two objects too is not one more write.
	changed := sameHolder(s.Snap, next) && s.Snap.Record != next.Record && !next.Nominated()
	return next.Held() && next.Record.Holder == c.Self && !s.wrote(next) && (s.Own.Duplicate || changed || appeared)
}

// replied takes in the end of the call in flight.
func (c Config) replied(s State, in Input) State {
	call := s.Flight
	s.Flight = Call{}
	if in.Result == OK && !call.Succeeded(in) {
		in.Result = Unknown
	}
	if in.Result != OK {
		s = c.failed(s, call, in)
		if call.Sent.Mono < s.Since.Record {
			s = c.withoutPauses(s) // it was nominated while the call was under way
		}
		return s
	}
	s = c.pollAfter(s, in)
	s.Requesting.AnsweredAt = in.Now.Mono
	*s.Effort.of(call.Op) = Effort{}
	// An answer to a question asked after we learned what we know is newer than
	// that, whatever its version says: a store can be restored from a backup.
	if in.Snap.Version >= s.Snap.Version || call.Learned == s.Learned {
		if call.Op == Read && s.Known == StaleGap && !call.BeforeGap {
			s.Known = Stale
		}
		s = c.observe(s, in)
	}
	return c.acknowledged(s, call, in)
}

// acknowledged takes in a write of ours that the store has confirmed. The cover
// counts from when the request was sent: the store may have applied it right then.
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
		// Creating a lock is guarded by nothing but that there is none. This one was
		// created and deleted again while our request was under way: we were right to
		// say that we may act when we sent it, and no longer are.
		s.Earlier.SettleAt, s.Own.Renewed = s.Earlier.Until, 0
		return s
	}
	s.Marked = s.Marked || call.Marker
	return s
}
