package core

import "time"

// decide says what should be true now. It is total and reads only its arguments.
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

// renewsUnread reports whether a holder whose reads fail goes on with what it knows. Its
// renewal is guarded by that version: if it succeeds, nothing was missed. A conflict has
// shown that something was.
func (c Config) renewsStale(s State, now ClockReading) bool {
	return s.Effort.Reads.Fails > 0 && now.Mono < s.Effort.Reads.Next && s.Effort.Writes.Conflicts == 0 && c.ownsTerm(s) &&
		(s.Phase == Settling || s.Phase == Leading || s.Phase == Draining)
}

// baseAction is the part of an action that holds whatever is sent.
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

// decideFollowing takes the lock when that is allowed, and otherwise waits for the
// moment when it will be, or for news.
func (c Config) decideFollowing(s State, now ClockReading, a Action) Action {
	if c.unrequestedNomination(s, now.Mono) {
		at := c.settledAt(s)
		if now.Mono >= at {
			return c.decideReleasing(s, now, a).withReason(Unrequested)
		}
		a = a.wake(at)
	}
	if c.mayRequest(s, now.Mono) && now.Mono >= s.BackOff.Until && now.Mono < c.ExpiresAt(s) {
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
		// No polls meanwhile: the next try finds out what has become of the lock.
		return a.wake(s.Effort.Writes.Next).withReason(Retrying)
	}
	record, notes := c.claim(s, now)
	return a.write(Acquire, s.Snap, record, notes).withReason(why)
}

// takeAt is from when on this candidate may take the lock, and by which right, or what keeps it from
// that until then.
func (c Config) earliestAcquire(s State, now Instant) (at Instant, why Reason) {
	if s.Unfit {
		return Never, NotFit
	}
	at, why = c.acquireTime(s)
	at, why = c.coordinatedAcquireTime(s, at, why)
	if at < s.BackOff.Until && s.BackOff.Until > now && !(c.IsNominee(s) && c.transferred(s)) {
		at, why = s.BackOff.Until, BackingOff
	}
	if !c.IsNominee(s) && now < s.SyncBy && at < s.SyncBy && c.Ranked && !s.Default.Synced {
		// Whoever takes the lock before it can judge a request has to be preempted, and
		// that costs a lease.
		return s.SyncBy, Unsynced
	}
	return at, why
}

// decideWaiting waits for the instant at which the lock may be taken. Without a watch, and beside a
// holder, it polls meanwhile.
func (c Config) decideWaiting(s State, now ClockReading, a Action, at Instant, why Reason) Action {
	if !s.Watch || s.Snap.Held() {
		if now.Mono >= s.PollAt {
			return c.read(s, now, a, Polling)
		}
		a = a.wake(s.PollAt)
	}
	switch {
	case why == BackingOff || why == NotFit || why == Unsynced:
	case s.Snap.Held():
		why = HeldByOther
	case why == NoCoordinator:
		why = NotNamed
	}
	return a.wake(at).withReason(why)
}

// unasked reports whether somebody has written us in as holder although we did not
// ask, or do not want it now. The lock is passed on at once: nobody acts. A coordinator names those that
// have published themselves as candidates; one that would not lead all the same gives it the lock back.
func (c Config) unrequestedNomination(s State, now Instant) bool {
	switch {
	case !c.IsNominee(s), c.Successor: // one that gave it back would say that no other successor acts, either
		return false
	case c.Coordinated && !c.transferred(s):
		return s.Unfit || now < s.BackOff.Until
	}
	return s.Unfit || !s.Requesting.Wanted && !c.transferred(s)
}

// Nominee reports whether somebody has written us in as holder, and nothing was written since.
func (c Config) IsNominee(s State) bool {
	return s.Snap.Nominated() && s.Snap.Record.Holder == c.Self && !s.Own.Duplicate
}

// decideAsking asks the leader to hand over, and waits for it to do so. A challenger
// whose request stands polls too, whatever its watch shows: that may be an hour old, and
// a nominee that does not come for a RetryPeriod is passed over.
func (c Config) decideRequest(s State, now ClockReading, a Action) Action {
	at := max(c.requestTime(s, now.Mono), s.Effort.Requests.Next)
	if at <= now.Mono {
		notes := s.Snap.Annotations
		notes.Request = c.request(s)
		return a.write(SendRequest, s.Snap, s.Snap.Record, notes).withReason(RequestingHandover)
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

// answerPoll is how often a challenger looks for the answer to its request. Without a
// watch the poll is all that it has. A leader whose renewal is overdue cannot write, and so
// neither answer nor nominate: it is not worth more polls than a candidate has anyway.
func (c Config) answerPoll(s State, now ClockReading) time.Duration {
	switch overdue := now.Mono >= s.Since.Record.After(2*c.Retry); {
	case !s.Watch:
		return c.Retry / 4
	case overdue:
		return c.Retry
	}
	return c.Retry / 2
}

// opening is from when on the lock may be taken, and the reason that then holds.
func (c Config) acquireTime(s State) (Instant, Reason) {
	snap := s.Snap
	switch {
	case !snap.Exists:
		return c.freeAcquireTime(s), Created
	case snap.Content == Missing:
		return c.freeAcquireTime(s), Filled
	case snap.Content == Unreadable:
		return c.withRankDelay(s, c.ExpiresAt(s)), Replaced
	case snap.Record.Holder == "" && snap.Strategy && !c.Coordinated:
		// Whoever does not ask a coordinator leaves it the time to name somebody.
		return max(c.freeAcquireTime(s), s.Since.Record.After(c.Retry)), Free
	case snap.Record.Holder == "":
		return c.freeAcquireTime(s), Free
	case snap.Record.Holder == c.Self && !s.Own.Duplicate:
		return 0, Reclaimed
	case c.Successor && snap.bySuccessors():
		return 0, Joined
	case snap.Nominated():
		return c.withRankDelay(s, min(s.Since.Record.After(c.Retry), c.ExpiresAt(s))), Nominated
	case snap.Record.Holder != c.Self && c.outranks(s) && (c.External || !c.acceptsRequests(s)) && max(s.Displaced.NotBefore, s.holdEnds()) < c.ExpiresAt(s):
		return max(s.Displaced.NotBefore, s.holdEnds()), Preempted
	}
	return c.withRankDelay(s, c.ExpiresAt(s)), Expired
}

// afterHigher puts off what falls due for all candidates at once, so that one of the
// highest rank goes first. Nobody waits for one who is not there.
func (c Config) withRankDelay(s State, at Instant) Instant {
	if c.isHighestRank(s) {
		return at
	}
	return at.After(c.RankDelay)
}

// freeFrom is when a candidate may write itself into a lock that nobody holds. One that
// would have to settle anyway loses nothing by waiting for somebody who would not:
// the leader whose lock was deleted has only to drain. And a higher rank goes first.
func (c Config) freeAcquireTime(s State) Instant {
	at := min(s.Since.Record.After(c.Retry), c.settledAt(s))
	if !c.isHighestRank(s) {
		at = max(at, s.Since.Record.After(c.RankDelay))
	}
	return at
}

// decideHolding renews, and answers requests.
func (c Config) decideHolding(s State, now ClockReading, a Action) Action {
	if !c.ownsTerm(s) || s.Drain.Overdue {
		return a.withReason(s.Why)
	}
	due := c.renewAt(s)
	accept, refuse, again := false, "", Never
	if s.Phase != Settling && !c.Successor {
		// Also while it drains for another reason: whoever renews and does not answer is
		// no leader of ours. See ignoresRequests.
		if accept, refuse, again = c.judge(s, now.Mono); accept || refuse != "" {
			due = now.Mono
		}
		if again > now.Mono {
			a = a.wake(again)
		}
	}
	due = max(due, s.Effort.Writes.Next)
	if now.Mono < due {
		return a.wake(due).withReason(Holding)
	}
	if c.writesForSuccessors(s, now.Mono) && !s.Snap.bySuccessors() && !s.Known.Outdated() {
		record, notes := c.claim(s, now)
		return a.write(Acquire, s.Snap, record, notes).withReason(Settled)
	}
	record, notes := c.renewal(s, now)
	why := Renewing
	switch {
	case accept:
		notes.Request.Accepted, notes.Request.Refused, why = true, "", Accepting
	case refuse != "":
		notes.Request.Refused, why = refuse, Refusing
	}
	return a.write(Renew, s.Snap, record, notes).withReason(why)
}

// renewAt is when a holder's next write is due, counted from when its last was sent. One that settles
// writes when it may act, and a leader whose marker has become wrong corrects it soon.
func (c Config) renewAt(s State) Instant {
	due, m := s.Own.Renewed.After(c.Retry), s.Snap.Annotations.Marker
	switch {
	case s.Phase == Settling && !c.Successor:
		return min(due, s.Earlier.SettleAt)
	case s.Phase == Settling && !s.Known.Outdated(): // else it is one more renewal, which does not end settling
		return min(due, c.settledAt(s))
	case s.Phase == Leading && !c.Successor && (m.Handover != c.handsOver(s) || m.Unfit != s.Unfit):
		return min(due, s.Own.Renewed.After(c.Retry/markerShare))
	}
	return due
}

// markerShare: a marker that has become wrong is written anew after this share of a
// RetryPeriod, so that whoever keeps changing it cannot make us write without a pause.
const markerShare = 8

// handsOver reports whether we could judge a request: our own watcher has synced, or
// there is no rank to judge by. A KeyComparisonFunc cannot tell who outranks us, but one
// that is unfit need not know.
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
		record, notes := c.nomination(s, r, now)
		return a.write(HandOver, s.Snap, record, notes).withReason(HandingOver)
	}
	stamp := s.nextStamp(now.Wall)
	record := Record{Lease: time.Second, Acquired: stamp, Renewed: stamp, Transitions: s.Snap.Record.Transitions}
	return a.write(Release, s.Snap, record, Annotations{}).withReason(ReleasingLock)
}

// nomination is the write that passes the lock on to the challenger whose request
// stands, or to whom a coordinator prefers. It acts only on a write of its own.
func (c Config) nomination(s State, r Request, now ClockReading) (Record, Annotations) {
	stamp := s.nextStamp(now.Wall)
	record := Record{
		// Not quite our lease: a nominee that is a peer writes its own, so that its first
		// write changes the record even within the second that ours was made in.
		Holder: r.Identity, Key: r.Key, Lease: c.Lease + time.Second,
		Acquired: stamp, Renewed: stamp, Transitions: s.nextTransition(),
	}
	notes := Annotations{Nominated: Nomination{Identity: r.Identity, Transitions: record.Transitions}}
	if r.Reason == ForOperator {
		// It also tells the nominee, which did not ask, that it is wanted.
		notes.Hold = Hold{
			Holder: r.Identity, Transitions: record.Transitions, Seconds: max(1, r.HoldSeconds),
			Requester: r.Requester, Reason: HoldForTransfer, Note: r.Note,
		}
	}
	return record, notes
}

// read asks the store, once the back-off allows it.
func (c Config) read(s State, now ClockReading, a Action, why Reason) Action {
	if now.Mono < s.Effort.Reads.Next {
		return a.wake(s.Effort.Reads.Next).withReason(Retrying)
	}
	a.Op = Read
	return a.withReason(why)
}

func (a Action) withReason(why Reason) Action { a.Why = why; return a }

// wake brings the wake-up forward.
func (a Action) wake(at Instant) Action { a.Wake = min(a.Wake, at); return a }

func (a Action) write(op Op, base Snapshot, r Record, n Annotations) Action {
	a.Op, a.Base, a.Record, a.Annotations = op, base, r, n
	return a
}
