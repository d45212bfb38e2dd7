package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Leadership is the present term, from the acknowledged acquisition until its end.
type Leadership struct {
	Term     Term
	Validity Validity
	Marked   bool    // the own marker was acknowledged in this term
	Running  bool    // run functions were started and have not all returned
	BeganAt  Instant // start of the term
	Drain    Drain
}

// Term identifies an uninterrupted period of leadership. The zero value is no term.
type Term struct {
	// LockUID is the UID of the lock object.
	LockUID string `json:"lockUID"`
	// Transitions is leaderTransitions of the record.
	Transitions int `json:"transitions"`
	// Token is the fencing token: the resourceVersion of the leader's first write in this term. It grows from term to term
	// within one etcd history.
	Token uint64 `json:"token,string"`
}

// Drain is the state of the end of a term. It can be both a step-down and a handover. If neither, the elector
// stops, or the term is lost.
type Drain struct {
	StepDown bool // the lock is released although the elector continues; a back-off follows
	HandOver bool // a request was accepted
	Lost     Loss
	Until    Instant       // deadline of the run functions or, in Releasing, of the release
	Overdue  bool          // run functions did not return within the limit
	CoolDown time.Duration // time without campaigning afterwards
	Sent     bool          // a release or handover was sent and may have been stored
}

// Loss is how a term lost its right to act. The gate of a lost term never opens again.
type Loss uint8

const (
	NotLost Loss = iota
	// ValidityLost: the validity has ended. The record is renewed until the run functions have returned.
	ValidityLost
	// RecordLost: the record was seen not to belong to this term. This is final.
	RecordLost
)

// Gate returns the time until which writes may pass. Zero: the gate is closed.
func (s *State) Gate() Validity {
	if s.Phase == Leading || s.Phase == Draining && s.Drain.Lost == NotLost {
		return s.Validity
	}
	return Validity{}
}

// ownsTerm reports whether the record belongs to the present term of this process.
func (c Config) ownsTerm(s *State) bool {
	snap := s.Snap
	if s.Drain.Lost == RecordLost || s.Term == (Term{}) || !snap.Held() || snap.UID != s.Term.LockUID ||
		snap.Record.Transitions != s.Term.Transitions || snap.Version < s.Term.Token {
		return false
	}
	return snap.Record.Holder == c.Self && s.Own.wrote(snap)
}

// acknowledged processes a stored write. Validity counts from when the request was sent.
func (c Config) acknowledged(s State, call Call, in Input) State {
	if call.Op != Acquire && call.Op != Renew {
		return s
	}
	if call.Op == Acquire {
		s.Term = Term{LockUID: in.Snap.UID, Transitions: call.Record.Transitions, Token: in.Snap.Version}
	}
	s.Own.Renewed = call.Sent.Mono
	if !c.ownsTerm(&s) || s.Drain.Lost != NotLost {
		return s
	}
	s.Validity = call.Sent.Plus(c.Validity)
	if call.Op == Acquire && s.Earlier.ActUntil() > s.Earlier.SettleAt {
		// Creating a lock has no guard. Another candidate created and deleted a lock while this request was in
		// flight, so this candidate has to settle.
		s.Earlier.SettleAt = s.Earlier.ActUntil()
		s.Own.Renewed = 0
		return s
	}
	s.Marked = s.Marked || call.Marker
	return s
}

// seenStored acknowledges the latest renewal if it is seen stored before its reply, or without one. Validity counts from when
// it was sent.
func (c Config) seenStored(s State) State {
	sent := s.Own.SentAt
	if sent.Mono <= s.Own.Renewed || s.Snap.Record.Renewed != s.Own.Writes[0].Renewed || !c.ownsTerm(&s) || s.Drain.Lost != NotLost {
		return s
	}
	s.Effort.Writes = Effort{}
	s.Own.Renewed = sent.Mono
	s.Validity = sent.Plus(c.Validity)
	s.Marked = s.Marked || s.Snap.Acting()
	return s
}

// maxBackOffShift limits the back-off after step-downs in a row.
const maxBackOffShift = 5

func (c Config) advanceFollowing(s State, now ClockReading) State {
	switch {
	case c.ownsTerm(&s):
		s.BeganAt = now.Mono
		s.Requesting.Count = 0
		switch {
		case !s.Marked:
			return s.enter(Settling, EarlierHolderMayAct)
		case !c.answeredInTime(&s, now):
			return s.enter(Settling, AnsweredLate)
		}
		return s.enter(Leading, Acquired)
	case s.Term != Term{}:
		s.Term, s.Validity, s.Marked = Term{}, Validity{}, false // the record changed before the reply arrived
		return s
	case !s.Stopping || s.Flight.Op != NoOp:
		return s
	case c.Release && (s.Own.AcquireUnknown || c.releasable(&s)) && now.Mono >= s.Earlier.ActUntil():
		// Before that, the record may be older, from a restored store.
		return c.release(s, now, Stopped)
	}
	return s.enter(Done, Stopped)
}

// answeredInTime reports whether at least half of the validity is left after a write. Otherwise the answer to the next renewal, if
// it takes as long, arrives after the validity, and the term is lost.
func (c Config) answeredInTime(s *State, now ClockReading) bool {
	return s.Validity.Left(now) >= c.Validity/2
}

func (c Config) advanceSettling(s State, now ClockReading) State {
	late := s.Marked && now.Mono >= max(s.BeganAt, s.Earlier.SettleAt).After(c.Lease)
	switch ends := s.Stopping || s.Barred; {
	case !c.ownsTerm(&s):
		return c.follow(s, now, c.lossReason(&s))
	case s.Marked && !ends && c.answeredInTime(&s, now):
		return s.enter(Leading, Settled)
	case s.Flight.Op != NoOp || !ends && !late:
		return s
	case s.Marked && (c.Release || !s.Stopping): // no earlier holder acts
		s.Drain.StepDown = true // another candidate may have a faster API server
		return c.release(s, now, AnsweredLate)
	case s.Stopping:
		return s.enter(Done, LeftToExpire)
	}
	return c.follow(s, now, LeftToExpire)
}

// release begins the release of the lock.
func (c Config) release(s State, now ClockReading, why Reason) State {
	s.Drain.Until = now.Mono.After(c.Validity)
	return s.enter(Releasing, why)
}

func (c Config) advanceLeading(s State, now ClockReading) State {
	switch lost := c.lost(&s, now); {
	case lost != NotLost:
		return c.lose(s, now, lost)
	case s.Stopping:
		return c.drain(s, now, Stopped)
	case s.Barred:
		return c.drain(s, now, BarredFromLock)
	case s.Drain.StepDown:
		return c.drain(s, now, SteppedDown)
	case s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted:
		// The acceptance is stored, so other candidates can see the next leader.
		return c.drain(s, now, HandingOver)
	case c.prefersOther(&s, now.Mono) && c.Coordinated:
		s.Drain.HandOver = true
		return c.drain(s, now, HandingOver)
	case c.prefersOther(&s, now.Mono):
		s.Drain.StepDown = true // the coordinator names the next holder
		return c.drain(s, now, Yielding)
	}
	return s
}

// drain cancels the run functions while the lease is kept.
func (c Config) drain(s State, now ClockReading, why Reason) State {
	s.Drain.Until = now.Mono.After(c.StopLimit)
	return s.enter(Draining, why)
}

// lost returns how the term has lost its right to act.
func (c Config) lost(s *State, now ClockReading) Loss {
	switch {
	case !c.ownsTerm(s):
		return RecordLost
	case s.Validity.Left(now) <= 0:
		return ValidityLost
	}
	return NotLost
}

// lose ends the right to act for good. The record is renewed until the run functions have returned or exceeded
// their limit, because another leader must not start while they run.
func (c Config) lose(s State, now ClockReading, lost Loss) State {
	why := ValidityEnded
	if lost == RecordLost {
		why = c.lossReason(&s)
	}
	s.Drain.Lost = lost
	s.Validity = Validity{}
	if !s.Drain.Overdue { // an exceeded limit is not extended
		s.Drain.Until = now.Mono.After(c.DrainLimit)
	}
	s.Stopping = s.Stopping || c.OneCycle
	return s.enter(Draining, why)
}

func (c Config) advanceDraining(s State, now ClockReading) State {
	switch lost := c.lost(&s, now); {
	case s.Drain.Lost == NotLost && lost != NotLost:
		return c.lose(s, now, lost)
	case s.Drain.Lost == ValidityLost && lost == RecordLost:
		s.Drain.Lost = RecordLost
		return s
	case !s.Drain.HandOver && lost != RecordLost && s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted:
		s.Drain.HandOver = true
		s.Drain.CoolDown = c.coolDown(&s)
		return s
	case s.Running && now.Mono >= s.Drain.Until && s.Stopping && s.Flight.Op == NoOp:
		s.Drain.Overdue = true
		return s.enter(Done, DrainStuck)
	case s.Running:
		s.Drain.Overdue = now.Mono >= s.Drain.Until
		return s
	case (s.Drain.StepDown || s.Drain.HandOver || s.Barred || s.Stopping && c.Release) && c.releasable(&s):
		return c.release(s, now, DrainedAll)
	}
	return c.follow(s, now, s.Why)
}

func (c Config) advanceReleasing(s State, now ClockReading) State {
	if s.Term != (Term{}) && !c.ownsTerm(&s) {
		s.Drain.Lost = RecordLost
	}
	gone := !s.Known.Outdated() && !c.releasable(&s)
	if s.Flight.Op != NoOp || !gone && now.Mono < s.Drain.Until {
		return s
	}
	return c.follow(s, now, c.releaseReason(&s, gone))
}

// releaseReason returns what happened to the lock. A lock of another holder was not necessarily released.
func (c Config) releaseReason(s *State, gone bool) Reason {
	switch {
	case !gone:
		return LeftToExpire
	case s.Drain.Sent:
		return Released
	case s.Term == Term{}:
		return Stopped // it was never acquired
	}
	return c.lossReason(s)
}

// releasable reports whether the own record may be released: its run functions have returned, and this process
// has acted in the term. Without that, another process may act.
func (c Config) releasable(s *State) bool {
	return s.Drain.Lost != RecordLost && s.Snap.Record.Holder == c.Self && s.Own.wrote(s.Snap) && !s.Own.Duplicate &&
		!s.Running && (s.Snap.Acting() || s.Marked && c.ownsTerm(s))
}

// follow ends the term and returns to Following.
func (c Config) follow(s State, now ClockReading, why Reason) State {
	if s.BeganAt.Until(now.Mono) > c.Lease {
		s.BackOff.Steps = 0
	}
	if s.Drain.StepDown {
		s.BackOff.Until = now.Mono.After(c.Retry << min(s.BackOff.Steps, maxBackOffShift))
		s.BackOff.Steps = min(s.BackOff.Steps+1, maxBackOffShift)
	}
	if s.Drain.CoolDown > 0 {
		s.BackOff.CoolDown = now.Mono.After(s.Drain.CoolDown)
	}
	if s.Own.Duplicate {
		s.BackOff.Until = now.Mono.After(c.Lease)
	}
	s.Term = Term{}
	s.Validity = Validity{}
	s.Drain = Drain{}
	s.Marked = false
	s.GiveWay = false
	s.Requesting.Wanted = false
	s.Stopping = s.Stopping || c.OneCycle
	s = s.enter(Following, why)
	if s.Stopping && s.Flight.Op == NoOp {
		return s.enter(Done, why)
	}
	return s
}

// lossReason returns why the record no longer belongs to the term.
func (c Config) lossReason(s *State) Reason {
	snap := s.Snap
	switch {
	case !snap.Exists || snap.UID != s.Term.LockUID:
		return LockDeleted
	case snap.Content == record.Unreadable:
		return RecordUnreadable
	case snap.Version < s.Term.Token:
		return HistoryRewound
	case snap.Content == record.Missing || snap.Record.Holder == "":
		return RecordEmptied
	case snap.ByCoordinator():
		return Superseded // a named holder is not this term
	case snap.Record.Holder == c.Self:
		return IdentityConflict
	}
	return Superseded
}

func (s State) enter(p Phase, why Reason) State {
	s.Phase = p
	s.Why = why
	if p == Leading {
		s.Displaced.Times = 0
	}
	return s
}

// decideHolding renews the lock and answers requests.
func (c Config) decideHolding(s *State, now ClockReading, a Action) Action {
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

// renewsStale reports whether a holder renews with a stale snapshot: its reads fail, or a watch began and its renewal is due. If the
// API server is slow, the validity ends before a read and a write are answered. The renewal is guarded by the version of the
// snapshot. A conflict shows that the snapshot is outdated.
func (c Config) renewsStale(s *State, now ClockReading) bool {
	if s.Effort.Writes.Conflicts > 0 || !c.ownsTerm(s) {
		return false
	}
	due := s.Phase == Leading && s.Known == StaleGap && now.Mono >= max(c.renewAt(s), s.Effort.Writes.Next)
	failing := s.Effort.Reads.Fails > 0 && now.Mono < s.Effort.Reads.Next
	return due || failing && (s.Phase == Settling || s.Phase == Leading || s.Phase == Draining)
}

// renewAt returns when the next write of a holder is due, counted from when the last one was sent. A settling
// holder writes when it may act. A leader corrects a wrong marker soon. After a watch began, it writes earlier, so that an answer that
// takes half of the validity arrives in time.
func (c Config) renewAt(s *State) Instant {
	due := s.Own.Renewed.After(c.Retry)
	m := s.Snap.Annotations.Marker
	switch {
	case s.Phase == Settling && !s.Marked:
		return min(due, s.Earlier.SettleAt)
	case s.Phase == Leading && s.Known == StaleGap:
		return min(due, s.Own.Renewed.After(c.Validity/gapShare))
	case s.Phase == Leading && (m.Handover != c.handsOver(s) || m.Unfit != s.Unfit || m.Uncoordinated != c.alone(s)):
		return min(due, s.Own.Renewed.After(c.Retry/markerShare))
	}
	return due
}

// gapShare is the divisor of the validity until when a leader reads after a watch began. It reads for at most a third of the rest (see
// usefulUntil), so more than half of the validity is left for a renewal.
const gapShare = 5

// markerShare is the divisor of RetryPeriod for the correction of a wrong marker, so that alternating values
// do not cause writes without a pause.
const markerShare = 8

// renewal returns the own record with a new renew time.
func (c Config) renewal(s *State, now ClockReading) (Record, Annotations) {
	act := s.Marked || now.Mono >= s.Earlier.SettleAt
	record := s.Snap.Record
	record.Renewed = c.ownStamp(s, now.Wall)
	record.Lease = c.ownLease(act)
	record.Key = c.Key
	return record, c.annotations(s, record, now, act)
}

// annotations returns the annotations next to the own record. While settling, the marker of the earlier leader
// stays, because the next holder has to wait for it too.
func (c Config) annotations(s *State, record Record, now ClockReading, act bool) Annotations {
	annotations := Annotations{Hold: s.activeHold(record, now.Mono)}
	switch m := s.Snap.Annotations.Marker; {
	case act:
		annotations.Marker = Marker{Identity: c.Self, Transitions: record.Transitions, Handover: c.handsOver(s), Unfit: s.Unfit, Uncoordinated: c.Uncoordinated(s, now.Mono)}
		if s.Phase != Following && s.Snap.Addressed() {
			annotations.Request = s.Snap.Annotations.Request
		}
	case m.Identity != c.Self:
		annotations.Marker = m
	}
	return annotations
}

func (c Config) decideReleasing(s *State, now ClockReading, a Action) Action {
	if now.Mono < s.Effort.Writes.Next {
		return a.wake(s.Effort.Writes.Next).withReason(Retrying)
	}
	if r := c.handoverTarget(s, now.Mono); r.Identity != "" {
		record, annotations := c.nomination(s, r, now)
		return a.write(HandOver, s.Snap, record, annotations).withReason(HandingOver)
	}
	return a.write(Release, s.Snap, s.Snap.Released(now.Wall), Annotations{}).withReason(ReleasingLock)
}

// EndedTerm is a term in which a process acted before the process ended.
type EndedTerm struct {
	Holder      string
	UID         string
	Transitions int
	// Acquired is the acquire time in the record. It differs between terms even at the maximum of Transitions.
	Acquired Stamp
}

// Acting returns the present term if this process may act in it, or has acted in it.
func (c Config) Acting(s *State) (EndedTerm, bool) {
	t := EndedTerm{Holder: c.Self, UID: s.Term.LockUID, Transitions: s.Term.Transitions, Acquired: s.Snap.Record.Acquired}
	return t, s.Marked && c.ownsTerm(s) && t.Left(s.Snap) == HolderDied
}

// Left returns HolderDied if the snapshot still has the term, so that a witness may release the lock after the process has
// ended. Otherwise it returns the reason why not. A holder without a marker may be settling: then an earlier leader may act.
func (t EndedTerm) Left(s Snapshot) Reason {
	switch r := s.Record; {
	case !s.Exists || s.UID != t.UID:
		return LockDeleted
	case s.Content == record.Unreadable:
		return RecordUnreadable
	case s.Content == record.Missing || r.Holder == "":
		return RecordEmptied
	case !r.IsTerm(t.Holder, t.Transitions) || r.Acquired != t.Acquired:
		return Superseded
	case !s.Acting():
		return EarlierHolderMayAct
	}
	return HolderDied
}
