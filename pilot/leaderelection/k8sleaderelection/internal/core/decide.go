package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// decide returns the desired state. It reads only its arguments.
func (c Config) decide(s State, now ClockReading) Action {
	a := c.baseAction(s, now)
	switch {
	case s.Phase == Done:
		return a.withReason(s.Why)
	case s.Flight.Op != NoOp:
		return a.withReason(InFlight)
	case s.Known == Unread || s.Known.Outdated() && !c.renewsStale(s, now):
		return c.read(s, now, a, NeedRead)
	case s.Known.Outdated():
		a = a.wake(s.Effort.Reads.Next)
	}
	switch s.Phase {
	case Following:
		return c.decideFollowing(s, now, a)
	case Settling, Leading, Draining:
		return c.decideHolding(s, now, a)
	case Releasing:
		return c.decideReleasing(s, now, a)
	case Done:
	}
	return a
}

// renewsStale reports whether a holder whose reads fail renews with a stale snapshot. The renewal is guarded
// by its version. A conflict shows that the snapshot is outdated.
func (c Config) renewsStale(s State, now ClockReading) bool {
	return s.Effort.Reads.Fails > 0 && now.Mono < s.Effort.Reads.Next && s.Effort.Writes.Conflicts == 0 && c.ownsTerm(s) &&
		(s.Phase == Settling || s.Phase == Leading || s.Phase == Draining)
}

// baseAction returns the part of the action that does not depend on the call.
func (c Config) baseAction(s State, now ClockReading) Action {
	a := Action{Wake: Never, Gate: s.Gate(), Run: s.Phase == Leading}
	if a.Gate != (Validity{}) {
		a = a.wake(now.Mono.After(a.Gate.Left(now)))
	}
	if s.Phase == Draining && !s.Drain.Overdue || s.Phase == Releasing && s.Flight.Op == NoOp {
		a = a.wake(s.Drain.Until)
	}
	return a
}

// decideFollowing acquires the lock if that is allowed, and otherwise waits.
func (c Config) decideFollowing(s State, now ClockReading, a Action) Action {
	if c.unrequestedNomination(s, now.Mono) {
		at := c.settledAt(s)
		if now.Mono >= at {
			return c.decideReleasing(s, now, a).withReason(Unrequested)
		}
		a = a.wake(at)
	}
	if c.mayRequest(s, now.Mono) && now.Mono >= c.backOffEnds(s) && now.Mono < c.ExpiresAt(s) {
		return c.decideRequest(s, now, a)
	}
	if ends := s.holdEnds(); ends > now.Mono {
		a = a.wake(ends)
	}
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

// earliestAcquire returns the earliest time at which this candidate may acquire the lock, and the reason why
// it may or must wait.
func (c Config) earliestAcquire(s State, now Instant) (at Instant, why Reason) {
	switch {
	case s.Barred:
		return Never, BarredFromLock
	case s.Unfit:
		return Never, NotFit
	}
	at, why = c.acquireTime(s)
	at, why = c.coordinatedAcquireTime(s, at, why)
	if until := c.backOffEnds(s); at < until && until > now && !(c.IsNominee(s) && c.transferred(s)) {
		at = until
		why = BackingOff
	}
	if !c.IsNominee(s) && now < s.SyncBy && at < s.SyncBy && c.Ranked && !s.Default.Synced {
		// A leader that cannot judge requests has to be preempted, which costs a lease.
		return s.SyncBy, Unsynced
	}
	return at, why
}

// BackingOff reports whether this candidate does not campaign after a step-down.
func (c Config) BackingOff(s State, now Instant) bool { return now < c.backOffEnds(s) }

// backOffEnds returns when this candidate campaigns again. An operator may have requested a cool-down from each
// candidate. So a cool-down ends after the lock was free or expired for a lease.
func (c Config) backOffEnds(s State) Instant {
	idle := s.Since.Idle
	if !s.Snap.Idle() {
		idle = c.ExpiresAt(s)
	}
	return max(s.BackOff.Until, min(s.BackOff.CoolDown, idle.After(c.Lease)))
}

// decideWaiting waits until the lock may be acquired. Without a watch, or while there is a holder whose expiry matters, it also
// polls.
func (c Config) decideWaiting(s State, now ClockReading, a Action, at Instant, why Reason) Action {
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

// unrequestedNomination reports whether another process wrote this candidate as holder although it sent no
// request or does not want the lock now. A coordinator names candidates without a request. An unfit candidate
// releases the lock again.
func (c Config) unrequestedNomination(s State, now Instant) bool {
	named := c.Coordinated && !c.transferred(s)
	unwanted := named && now < c.backOffEnds(s) || !named && !s.Requesting.Wanted && !c.transferred(s)
	return c.IsNominee(s) && (s.Unfit || s.Barred || unwanted)
}

// IsNominee reports whether another process wrote this candidate as holder, and the record is unchanged since.
func (c Config) IsNominee(s State) bool {
	return s.Snap.Nominated() && s.Snap.Record.Holder == c.Self && !s.Own.Duplicate
}

// decideRequest sends a handover request and waits for the handover. A challenger with a pending request also
// polls, because its watch may be late and a nominee has only a RetryPeriod.
func (c Config) decideRequest(s State, now ClockReading, a Action) Action {
	at := max(c.requestTime(s, now.Mono), s.Effort.Requests.Next)
	if at <= now.Mono {
		annotations := s.Snap.Annotations
		annotations.Request = c.request(s)
		return a.write(SendRequest, s.Snap, s.Snap.Record, annotations).withReason(RequestingHandover)
	}
	a = a.wake(min(at, c.ExpiresAt(s)))
	poll := s.PollAt
	if s.requested(now.Mono) && s.Snap.Annotations.Request.Identity == c.Self {
		poll = min(poll, max(s.Requesting.AnsweredAt.After(c.answerPoll(s, now)), s.Effort.Reads.Next))
	}
	if now.Mono >= poll {
		return c.read(s, now, a, Polling)
	}
	return a.wake(poll).withReason(RequestPending)
}

// answerPoll returns how often a challenger polls for the answer. If the renewal of the leader is overdue, it
// cannot answer, and the poll is less frequent.
func (c Config) answerPoll(s State, now ClockReading) time.Duration {
	switch overdue := now.Mono >= s.Since.Record.After(2*c.Retry); {
	case !s.Watch:
		return c.Retry / 4
	case overdue:
		return c.Retry
	}
	return c.Retry / 2
}

// acquireTime returns the earliest time to acquire the lock and the reason.
func (c Config) acquireTime(s State) (Instant, Reason) {
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
		return max(s.Displaced.NotBefore, s.holdEnds()), Preempted
	}
	return c.withRankDelay(s, c.ExpiresAt(s)), Expired
}

// withRankDelay delays an event that all candidates react to, so that the highest rank acts first.
func (c Config) withRankDelay(s State, at Instant) Instant {
	if c.isHighestRank(s) {
		return at
	}
	return at.After(c.RankDelay)
}

// freeAcquireTime returns when a free lock may be acquired. A candidate that would have to settle waits for a
// RetryPeriod, because the leader of a deleted lock only has to drain. Lower ranks wait for the rank delay.
func (c Config) freeAcquireTime(s State) Instant {
	return max(min(s.Since.Record.After(c.Retry), c.settledAt(s)), c.withRankDelay(s, s.Since.Record))
}

// decideHolding renews the lock and answers requests.
func (c Config) decideHolding(s State, now ClockReading, a Action) Action {
	if !c.ownsTerm(s) || s.Drain.Overdue {
		return a.withReason(s.Why)
	}
	due := c.renewAt(s)
	// A draining leader answers too: see ignoresRequests.
	accept, refuse, again := c.judge(s, now.Mono)
	if accept || refuse != "" {
		due = now.Mono
	} else {
		a = a.wake(again)
	}
	due = max(due, s.Effort.Writes.Next)
	if now.Mono < due {
		return a.wake(due).withReason(Holding)
	}
	record, annotations := c.renewal(s, now)
	a.Unprefer = c.unprefers(s, now.Mono)
	why := Renewing
	switch {
	case accept:
		annotations.Request.Accepted = true
		annotations.Request.Refused = ""
		why = Accepting
	case refuse != "":
		annotations.Request.Refused = refuse
		why = Refusing
	}
	return a.write(Renew, s.Snap, record, annotations).withReason(why)
}

// renewAt returns when the next write of a holder is due, counted from when the last one was sent. A settling
// holder writes when it may act. A leader corrects a wrong marker soon.
func (c Config) renewAt(s State) Instant {
	due := s.Own.Renewed.After(c.Retry)
	m := s.Snap.Annotations.Marker
	switch {
	case s.Phase == Settling:
		return min(due, s.Earlier.SettleAt)
	case s.Phase == Leading && (m.Handover != c.handsOver(s) || m.Unfit != s.Unfit):
		return min(due, s.Own.Renewed.After(c.Retry/markerShare))
	}
	return due
}

// markerShare is the divisor of RetryPeriod for the correction of a wrong marker, so that alternating values
// do not cause writes without a pause.
const markerShare = 8

// handsOver reports whether this candidate can judge a request: its watcher has synced, or there are no ranks.
// With a KeyComparisonFunc it can hand over only while unfit.
func (c Config) handsOver(s State) bool {
	if c.Ranked {
		return s.Default.Synced
	}
	return !c.External || s.Unfit
}

func (c Config) decideReleasing(s State, now ClockReading, a Action) Action {
	if now.Mono < s.Effort.Writes.Next {
		return a.wake(s.Effort.Writes.Next).withReason(Retrying)
	}
	if r := c.handoverTarget(s, now.Mono); r.Identity != "" {
		record, annotations := c.nomination(s, r, now)
		return a.write(HandOver, s.Snap, record, annotations).withReason(HandingOver)
	}
	return a.write(Release, s.Snap, s.Snap.Released(now.Wall), Annotations{}).withReason(ReleasingLock)
}

// nomination returns the write of a handover.
func (c Config) nomination(s State, r Request, now ClockReading) (Record, Annotations) {
	stamp := s.Snap.Record.Renewed.Next(now.Wall, 0)
	next := Record{
		// The lease differs from the own one. So the first write of a peer changes the record even within the
		// same second.
		Holder: r.Identity, Key: r.Key, Lease: c.Lease + time.Second,
		Acquired: stamp, Renewed: stamp, Transitions: s.nextTransition(),
	}
	annotations := Annotations{Nominated: Nomination{Identity: r.Identity, Transitions: next.Transitions}}
	if r.Reason == record.ForOperator {
		// It also informs the nominee, which sent no request.
		annotations.Hold = Hold{
			Holder: r.Identity, Transitions: next.Transitions, Seconds: max(1, r.HoldSeconds),
			Requester: r.Requester, Reason: record.HoldForTransfer, Note: r.Note,
		}
	}
	return next, annotations
}

// read reads the lock when the back-off allows it.
func (c Config) read(s State, now ClockReading, a Action, why Reason) Action {
	if now.Mono < s.Effort.Reads.Next {
		return a.wake(s.Effort.Reads.Next).withReason(Retrying)
	}
	a.Op = Read
	return a.withReason(why)
}

func (a Action) withReason(why Reason) Action { a.Why = why; return a }

// wake sets the wake-up to at if that is earlier.
func (a Action) wake(at Instant) Action { a.Wake = min(a.Wake, at); return a }

func (a Action) write(op Op, base Snapshot, r Record, n Annotations) Action {
	a.Op = op
	a.Base = base
	a.Record = r
	a.Annotations = n
	return a
}
