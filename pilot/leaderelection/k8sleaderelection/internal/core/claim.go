package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Claim has what keeps this candidate from acquiring the lock, or from acting after it has acquired the lock.
type Claim struct {
	SyncBy    Instant // end of the wait for the default revision, set at the first step
	Earlier   Earlier
	Displaced Displaced
	BackOff   BackOff
}

// Earlier is the time until which earlier holders may still act.
type Earlier struct {
	Until    Instant // a holder whose term did not end well may act until then
	Former   Instant // a leader of which another process left the marker may act until then
	Away     Away    // leader whose lock was deleted last
	SettleAt Instant // end of settling, set when the acquiring write was sent
}

// ActUntil returns until when any earlier holder may act.
func (e Earlier) ActUntil() Instant { return max(e.Until, e.Former) }

// Away is an incumbent leader whose lock object was deleted while it acted. If its own marker is in the next
// object, its previous run functions have returned.
type Away struct {
	Holder string
	Prior  Instant // Earlier.Until without this leader
	Until  Instant // Earlier.Until with this leader
}

// Displaced delays a candidate that lost its lock to another one, until the default changes.
type Displaced struct {
	NotBefore Instant // no preempting before
	Times     uint8   // in a row, without a term in between
	ByEqual   bool    // by an equal key, which must not be preempted
}

// BackOff is a time without campaigning.
type BackOff struct {
	Until    Instant
	CoolDown Instant // the same by a request, until no other candidate acquires the lock
	Steps    uint8   // step-downs in a row
}

// observeClaim records until when earlier holders may act, and whether this candidate was displaced.
func (c Config) observeClaim(s *State, v sighting) Claim {
	claim := s.Claim
	if s.Known != Unread && v.changed {
		claim = c.displaced(*s, v)
	}
	if s.Known == Current && c.coolDownEnds(s) <= v.at {
		claim.BackOff.CoolDown = 0
	}
	if c.hasWaited(&s.Sight, v.Snapshot) {
		claim.Earlier.Former = 0
	}
	if hasFormer(v.Snapshot, c.Self) && !(v.Record.Holder == c.Self && s.Own.wrote(v.Snapshot)) && !(v.follows && v.Annotations.Marker == s.Snap.Annotations.Marker) {
		// It is recorded here because an edit may remove the marker. For a leader that this process displaced,
		// see claimed.
		claim.Earlier.Former = max(claim.Earlier.Former, v.since.Former.After(c.formerLease(&s.Sight, v.Snapshot)))
	}
	return claim
}

// formerLease returns how long the leader of another term, which left its marker, may act after the marker was seen. Its validity
// ends within the lease that it recorded itself. The record that overwrote it can have any lease: it belongs to another
// elector, or to a stranger.
func (c Config) formerLease(s *Sight, snap Snapshot) time.Duration {
	m := snap.Annotations.Marker
	return c.leaderLease(s, m.Identity, m.Transitions)
}

// hasWaited reports whether next shows a later leader instead of a marker that was left. That leader acquired the lock next to the
// marker, because each write is guarded by the version that it was decided on. So it waited for its own lease before it wrote its
// marker. If its lease is as long as the wait of this candidate, the former leader cannot act any more.
func (c Config) hasWaited(s *Sight, next Snapshot) bool {
	m := s.Snap.Annotations.Marker
	return s.Snap.Former() != "" && next.Acting() && next.UID == s.Snap.UID && next.Version > s.Snap.Version &&
		next.Record.Transitions > m.Transitions && next.Record.Lease >= c.formerLease(s, s.Snap)
}

// displaced records until when the present holder may act, if v shows that its term did not end well.
func (c Config) displaced(s State, v sighting) Claim {
	next := v.Snapshot
	// After a restore, a nominee may have acted before.
	unchanged := record.SameHolder(s.Snap, next) && !next.Nominated() && next.Version >= s.Snap.Version
	if unchanged || c.endedWell(s.Snap, next) {
		return s.Claim
	}
	if away := s.Earlier.Away; !s.Snap.Exists && next.Acting() && next.Record.Holder == away.Holder && s.Earlier.Until == away.Until {
		// The leader whose lock was deleted acts in the new one, and there was no other reason to wait since.
		s.Earlier.Until = s.Earlier.Away.Prior
		s.Earlier.Away = Away{}
	}
	if until := c.displacedActsUntil(&s, v); until > s.Earlier.Until && !next.Exists && s.Snap.Acting() {
		s.Earlier.Away = Away{Holder: s.Snap.Record.Holder, Prior: s.Earlier.Until, Until: until}
		s.Earlier.Until = until
	} else {
		s.Claim = s.addEarlier(until)
	}
	if s.Snap.Held() && s.Snap.Record.Holder == c.Self && s.Own.wrote(s.Snap) && next.Held() {
		s.Displaced = c.displacement(&s, next, v.at)
	}
	return s.Claim
}

// displacedActsUntil returns until when the holder that v displaced may act. Zero: it does not act.
func (c Config) displacedActsUntil(s *State, v sighting) Instant {
	next := v.Snapshot
	missedTerm := next.Record.Transitions > s.Snap.Record.Transitions && !(next.Held() && next.Record.Transitions == after(s.Snap.Record.Transitions))
	if missedTerm && next.Former() == c.Self {
		// An incumbent leader would have replaced the own marker, so the record of a settling holder or of
		// another elector was emptied or overwritten.
		return v.at.After(c.Lease).After(c.PeerGrace)
	}
	until := c.mayActAfter(s, s.Since.Record, v.at)
	missed := c.mayActAfter(s, v.at, v.at) // it may have renewed until now without being observed
	if s.Snap.Nominated() && s.Snap.Record.Holder != c.Self && (!(next.Held() && next.UID == s.Snap.UID) || next.ByCoordinator() && !v.follows) {
		// The first own write of the nominee may have been missed.
		until = c.goneUntil(s, s.Since.Record, v.at).After(c.PeerGrace)
		missed = c.goneUntil(s, v.at, v.at).After(c.PeerGrace)
	}
	acquired := next.Held() && next.UID == s.Snap.UID && next.Version > s.Snap.Version &&
		next.Record.Transitions >= after(s.Snap.Record.Transitions) || // a lower number is a restore
		v.follows && next.Version > s.Snap.Version
	switch {
	case until == 0:
	case acquired && next.Acting():
		until = 0 // the new leader has waited for it
	case s.Snap.Acting() && s.Snap.Record.Holder == next.Record.Holder && next.Acting() && next.Version > s.Snap.Version:
		until = 0 // it acts in a recreated lock, so its previous run functions have ended
	case !acquired || !v.next || missedTerm && !next.Nominated():
		// Another elector acquires a lock without waiting for its leader.
		until = missed
	case next.Record.Holder == c.Self && s.Own.wrote(next):
		until = min(until, s.Earlier.SettleAt) // it counts from when this process sent its write: see claimed
	}
	return until
}

// endedWell reports whether b shows that the term in a ended after its run functions returned: by a drained
// release or a handover. A marker that the holder in a had found does not show how its own term ended.
func (c Config) endedWell(a, b Snapshot) bool {
	if !b.Exists || a.UID != b.UID || b.Version < a.Version || b.Content != record.Readable {
		return false
	}
	// A release of an incumbent leader removes the marker, and a settling holder does not release.
	incumbent := a.Acting() || a.Record.Lease == c.settlingLease()
	if m := b.Annotations.Marker; m != (Marker{}) && (incumbent || m != a.Annotations.Marker) {
		return false
	}
	if b.Record.Holder == "" {
		return b.Record.Transitions == a.Record.Transitions
	}
	if b.ByCoordinator() {
		// Only the leader itself removes its marker, in its drained release.
		return a.Acting() && b.Annotations.Marker == (Marker{}) && b.Record.Transitions == a.Record.Transitions
	}
	return b.Nominated() && b.Record.Transitions == after(a.Record.Transitions)
}

// displacement returns Displaced after next displaced this candidate. Two candidates with different defaults
// outrank each other. Without a pause they would alternate.
func (c Config) displacement(s *State, next Snapshot, now Instant) Displaced {
	d := s.Displaced
	return Displaced{
		NotBefore: now.After(c.preemptPause(d.Times)),
		Times:     min(d.Times+1, maxBackOffShift),
		ByEqual:   d.ByEqual || s.Phase != Following && next.Record.Key == c.Key,
	}
}

// displacedUnseen returns Displaced after the reply to an acquisition showed that it was stored, and that another candidate had
// already displaced this one: its record was seen before the own one.
func (c Config) displacedUnseen(s *State, call Call, in Input) Displaced {
	if s.Snap.Held() && s.Snap.Record.Holder != c.Self && s.Own.Acked != writeOf(call.Record) {
		return c.displacement(s, s.Snap, in.Now.Mono)
	}
	return s.Displaced
}

// addEarlier records that a holder may act until then, even if the leader that is away returns.
func (claim Claim) addEarlier(until Instant) Claim {
	claim.Earlier.Until = max(claim.Earlier.Until, until)
	if claim.Earlier.Away != (Away{}) {
		claim.Earlier.Away.Prior = max(claim.Earlier.Away.Prior, until)
	}
	return claim
}

// preemptPause returns how long a candidate that was displaced n times in a row does not preempt: first long
// enough for both to learn the new default, then long enough for the other to settle.
func (c Config) preemptPause(n uint8) time.Duration {
	if n == 0 {
		return c.Retry
	}
	return (c.Lease + c.PeerGrace + c.Retry) << (n - 1)
}

// mayActUntil returns the last instant at which the recorded holder may act while its record remains. Zero: it does not act.
func (c Config) mayActUntil(s *State) Instant { return c.holderActs(s, c.ExpiresAt(s)) }

// mayActAfter is mayActUntil after another process replaced the record at that time. The holder was last seen to write at renewed.
func (c Config) mayActAfter(s *State, renewed, gone Instant) Instant {
	return c.holderActs(s, c.goneUntil(s, renewed, gone))
}

// goneUntil returns until when a holder may act whose record is gone. A leader acts no longer than the lease that it recorded with its
// marker. A longer lease in the record does not count, because any process with the verb update can write it. A holder without a
// marker is no incumbent leader, or its marker was removed after it was seen. Another elector has an own lease to notice the change.
func (c Config) goneUntil(s *State, renewed, gone Instant) Instant {
	r := s.Snap.Record
	return min(renewed.After(c.lease(r)), max(gone.After(c.Lease), renewed.After(c.leaderLease(&s.Sight, r.Holder, r.Transitions))))
}

// holderActs returns until, with PeerGrace for a holder without its marker: it may be another elector, or have displaced one without
// settling, also if it is unreadable or a previous process of this candidate. Zero: the recorded holder does not act.
func (c Config) holderActs(s *State, until Instant) Instant {
	snap := s.Snap
	mine := snap.Record.Holder == c.Self
	switch {
	case snap.Exists && snap.Content == record.Unreadable:
	case !snap.Held() || snap.Nominated(), // no holder, or a nominee that has not written yet
		// An own drained term, or the term of a previous process with this identity that had begun to act.
		mine && !s.Own.Duplicate && (s.Own.wrote(snap) || snap.Acting()):
		return 0
	case snap.Acting() && !c.ignoresRequests(s):
		return until
	}
	return until.After(c.PeerGrace)
}

// settledAt returns the earliest time at which this candidate may act if it acquires the lock while the record remains.
func (c Config) settledAt(s *State) Instant { return c.settled(s, c.mayActUntil(s)) }

func (c Config) settled(s *State, holder Instant) Instant {
	if c.Immediate && s.Snap.Held() && !hasFormer(s.Snap, c.Self) {
		return 0
	}
	return max(s.Earlier.ActUntil(), holder)
}

// ownNameFound reports whether the record has the name of this candidate and a marker that this process did not write. The previous
// process has probably ended without a witness. Or it is alive: two processes have one identity. Then it sees the write of this process
// by its watch, or its next renewal conflicts, and it stops. So this process waits for a RetryPeriod between its write and its acts.
func (c Config) ownNameFound(s *State) bool {
	return s.Snap.Record.Holder == c.Self && s.Snap.Acting() && !s.Own.Duplicate && !s.Own.wrote(s.Snap)
}

// claimed records the end of settling when the acquiring write is sent, because a watch event of this write may arrive before
// its reply. Even if the write fails, the holders may act until then. The write replaces the record of the holder.
func (c Config) claimed(s State, now Instant) Claim {
	holder := c.mayActAfter(&s, s.Since.Record, now)
	s.Earlier.SettleAt = c.settled(&s, holder)
	s.Earlier.Until = max(s.Earlier.Until, min(holder, s.Earlier.SettleAt))
	if c.ownNameFound(&s) {
		s.Earlier.SettleAt = max(s.Earlier.SettleAt, now.After(c.Retry))
		s.Earlier.Until = max(s.Earlier.Until, now.After(c.Retry)) // also for the next write, if this one has no answer
	}
	return s.Claim
}

// decideClaim acquires the lock if that is allowed, and otherwise waits.
func (c Config) decideClaim(s *State, now ClockReading, a Action) Action {
	at, why := c.earliestAcquire(s, now.Mono)
	switch {
	case at > now.Mono:
		return c.decideWaiting(s, now, a, at, why)
	case now.Mono < s.Effort.Writes.Next:
		// No polls here: the next write shows the state of the lock.
		return a.wake(s.Effort.Writes.Next).withReason(Retrying)
	}
	record, annotations := c.claim(s, now)
	a.Unprefer = c.unprefers(s, now.Mono)
	return a.write(Acquire, s.Snap, record, annotations).withReason(why)
}

// decideWaiting waits until the lock may be acquired. Without a watch, or while there is a holder whose expiry matters, it also
// polls.
func (c Config) decideWaiting(s *State, now ClockReading, a Action, at Instant, why Reason) Action {
	if !s.Watch || s.Snap.Held() && why != BarredFromLock {
		if now.Mono >= s.PollAt {
			return c.read(s, now, a, Polling)
		}
		a = a.wake(s.PollAt)
	}
	switch {
	case why == BackingOff || why == NotFit || why == BarredFromLock || why == Unsynced:
	case s.Snap.Held():
		why = HeldByOther
	case why == NoCoordinator:
		why = NotNamed
	}
	return a.wake(at).withReason(why)
}

// earliestAcquire returns the earliest time at which this candidate acquires the lock, and the reason why
// it may or must wait.
func (c Config) earliestAcquire(s *State, now Instant) (at Instant, why Reason) {
	if at, why = c.claimTime(s, now); why == Reclaimed {
		return at, why
	}
	return at.After(c.turn(s)), why
}

// claimTime is earliestAcquire without the turns of equal candidates.
func (c Config) claimTime(s *State, now Instant) (at Instant, why Reason) {
	switch {
	case s.Barred:
		return Never, BarredFromLock
	case s.Unfit:
		return Never, NotFit
	}
	at, why = c.acquireTime(s)
	at, why = c.coordinatedAcquireTime(s, at, why)
	if until := c.backOffEnds(s); at < until && !(c.IsNominee(s) && c.transferred(s)) {
		at = until
		if until > now {
			why = BackingOff
		}
	}
	if !c.IsNominee(s) && now < s.SyncBy && at < s.SyncBy && c.Ranked && !s.Default.Synced {
		// A leader that cannot judge requests has to be preempted, which costs a lease.
		return s.SyncBy, Unsynced
	}
	return at, why
}

// acquireTime returns the earliest time to acquire the lock and the reason.
func (c Config) acquireTime(s *State) (Instant, Reason) {
	snap := s.Snap
	switch {
	case !snap.Exists:
		return c.freeAcquireTime(s), Created
	case snap.Content == record.Missing:
		return c.freeAcquireTime(s), Filled
	case snap.Content == record.Unreadable:
		return c.withRankDelay(s, c.ExpiresAt(s)), Replaced
	case snap.Record.Holder == "" && !c.Coordinated && c.followsCoordinator(s):
		// An uncoordinated candidate leaves time for the coordinator.
		return max(c.freeAcquireTime(s), s.Since.Record.After(c.Retry)), Free
	case snap.Record.Holder == "":
		return c.freeAcquireTime(s), Free
	case snap.Record.Holder == c.Self && !s.Own.Duplicate:
		return 0, Reclaimed
	case snap.Nominated():
		return c.withRankDelay(s, min(s.Since.Record.After(c.Retry), c.ExpiresAt(s))), Nominated
	case snap.Record.Holder != c.Self && c.outranks(s) && (c.External || !c.acceptsRequests(s)) && max(s.Displaced.NotBefore, s.holdEnds()) < c.ExpiresAt(s):
		at := max(s.Displaced.NotBefore, s.holdEnds(), s.Since.Record, s.Since.Default)
		if l := s.Leader; l.Holder == snap.Record.Holder && after(l.Transitions) == snap.Record.Transitions {
			at = max(at, s.Since.Former.After(2*c.Retry)) // after a restart, its marker follows after a RetryPeriod
		}
		return at, Preempted
	}
	return c.withRankDelay(s, c.ExpiresAt(s)), Expired
}

// coordinatedAcquireTime adjusts the time of acquireTime in a coordinated election. An uncoordinated candidate
// leaves a lease for the preferred candidate.
func (c Config) coordinatedAcquireTime(s *State, at Instant, why Reason) (Instant, Reason) {
	switch uncoordinated := c.uncoordinatedTime(s); {
	case why == Reclaimed:
	case !c.Coordinated && why == Free && c.followsCoordinator(s) && s.Snap.Preferred != "" && s.Snap.Preferred != c.Self:
		return max(at, s.Since.Record.After(c.Lease)), NoCoordinator
	case c.Coordinated && uncoordinated > at:
		return c.withRankDelay(s, uncoordinated), NoCoordinator
	}
	return at, why
}

// freeAcquireTime returns when a free lock may be acquired. A candidate that would have to settle waits for a
// RetryPeriod, because the leader of a deleted lock only has to drain. Lower ranks wait for the rank delay.
func (c Config) freeAcquireTime(s *State) Instant {
	return c.withRankDelay(s, max(s.Since.Record, min(s.Since.Record.After(c.Retry), c.settledAt(s))))
}

// withRankDelay delays an event that all candidates react to, so that the highest rank acts first. In a herd, the
// candidates of the highest rank need more time, because they take turns.
func (c Config) withRankDelay(s *State, at Instant) Instant {
	if c.isHighestRank(s) {
		return at
	}
	return at.After(c.RankDelay + s.Effort.Herd.Window/4)
}

// BackingOff reports whether this candidate does not campaign after a step-down.
func (c Config) BackingOff(s *State, now Instant) bool { return now < c.backOffEnds(s) }

// backOffEnds returns when this candidate campaigns again.
func (c Config) backOffEnds(s *State) Instant { return max(s.BackOff.Until, c.coolDownEnds(s)) }

// coolDownEnds returns the end of the cool-down. An operator may have requested one from each candidate. So it ends after the
// lock was free or expired for a lease. It does not begin again with the next holder: see observeClaim.
func (c Config) coolDownEnds(s *State) Instant {
	idle := s.Since.Idle
	if !s.Snap.Idle() {
		idle = c.ExpiresAt(s)
	}
	return min(s.BackOff.CoolDown, idle.After(c.Lease))
}

// IsNominee reports whether another process wrote this candidate as holder, and the record is unchanged since.
func (c Config) IsNominee(s *State) bool {
	return s.Snap.Nominated() && s.Snap.Record.Holder == c.Self && !s.Own.Duplicate
}

// unrequestedNomination reports whether another process wrote this candidate as holder although it sent no
// request or does not want the lock now. A coordinator names candidates without a request. An unfit candidate
// releases the lock again.
func (c Config) unrequestedNomination(s *State, now Instant) bool {
	named := c.Coordinated && !c.transferred(s)
	unwanted := named && now < c.backOffEnds(s) || !named && !s.Requesting.Wanted && !c.transferred(s)
	return c.IsNominee(s) && (s.Unfit || s.Barred || unwanted)
}

// claim returns the write that begins a term. It has the own marker only if this candidate may act after its
// acknowledgement.
func (c Config) claim(s *State, now ClockReading) (Record, Annotations) {
	old := s.Snap.Record
	stamp := c.ownStamp(s, now.Wall)
	act := now.Mono >= c.settledAt(s) && !c.ownNameFound(s)
	record := Record{
		Holder: c.Self, Key: c.Key, Lease: c.ownLease(act),
		Acquired: stamp, Renewed: stamp, Transitions: s.nextTransition(),
	}
	if s.Snap.Nominated() && !s.Snap.ByCoordinator() && old.Holder == c.Self {
		record.Transitions = old.Transitions // the handover has counted this term
	}
	return record, c.annotations(s, record, now, act)
}

// nextTransition returns the transitions of a new term. A new object begins at 0, and an object without a
// record at 1, as with client-go and istiod. If the record was removed, the last readable number counts.
func (s *Sight) nextTransition() int {
	if !s.Snap.Exists {
		return 0
	}
	return after(max(s.Count, s.Snap.Record.Transitions))
}

// maxTransitions is the maximum of a Lease.
const maxTransitions = 1<<31 - 1

// after returns the number of the next term. At the maximum it stays: the guard of the lock would reject a
// lower number. Terms then differ by token, holder and marker.
func after(transitions int) int {
	return max(transitions, min(transitions+1, maxTransitions))
}
