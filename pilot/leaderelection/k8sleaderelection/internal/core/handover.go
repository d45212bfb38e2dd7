package core

import (
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Handover has the own handover requests, and the challengers that no request should nominate.
type Handover struct {
	Requesting Requests
	Failed     FailedNominees
}

// Requests is the state of the own handover requests.
type Requests struct {
	Wanted     bool    // this candidate has sent a request and still wants the lock
	NotBefore  Instant // no request before
	Count      uint8   // own requests in a row that did not lead to a term; see requestSent
	AnsweredAt Instant // last reply of the store; a watch may be later
	// Ignored is the time during which the holder renewed without answering own requests: see ignoresRequests.
	Ignored time.Duration
}

// Reasons of a refusal.
const (
	refusedNoRank = "the challenger does not outrank the holder, by the default revision that the holder has seen"
	refusedFailed = "the challenger was nominated and did not acquire the lock"
	refusedHeld   = "a hold of an operator is in effect"
	refusedByRank = "a coordinator selects the leader of this election"
)

// requestLengths is the number of different durations of requests in a row. A leader that misses more of them has lost its term.
const requestLengths = 4

// observeHandover processes the answer of the leader, or its absence, and the end of a nomination.
func (c Config) observeHandover(s *State, v sighting) Handover {
	h := s.Handover
	if s.Known != Unread && v.changed {
		h.Failed = c.failedNominees(s, v.Snapshot, v.at)
	}
	h.Requesting.Ignored = c.ignoredTime(s, v)
	return h
}

// ignoredTime returns the time during which the holder renewed instead of answering. Another term, another marker
// or an answer resets it. AcquireTime distinguishes terms at the maximum of transitions. Requests of other
// challengers and expired requests do not count.
func (c Config) ignoredTime(s *State, v sighting) time.Duration {
	was := s.Snap
	r := v.Annotations.Request
	if !v.Acting() || !record.SameHolder(was, v.Snapshot) || was.Annotations.Marker != v.Annotations.Marker || was.Record.Acquired != v.Record.Acquired || v.Version < was.Version ||
		v.Addressed() && (r.Refused != "" || r.Accepted != was.Annotations.Request.Accepted) {
		return 0
	}
	pending := s.requested(v.at) && (r.Accepted || r.Identity == c.Self)
	if pending && r == was.Annotations.Request && was.Record != v.Record {
		// A longer time includes a pause of this process.
		return s.Requesting.Ignored + min(max(s.Since.Record, s.Since.Request).Until(v.at), 2*c.Retry)
	}
	return s.Requesting.Ignored
}

// requested reports whether the leader has to process a request: it is accepted, or neither refused nor
// expired.
func (s *Sight) requested(now Instant) bool {
	r := s.Snap.Annotations.Request
	return s.Snap.Addressed() && (r.Accepted || r.Refused == "" && now < s.requestEnds())
}

// requestEnds returns the expiry of the request, counted from when it was first seen.
func (s *Sight) requestEnds() Instant {
	return s.Since.Request.After(record.RequestTime(s.Snap.Annotations.Request.Seconds))
}

// acceptsRequests reports whether the holder is a leader that hands over on request.
func (c Config) acceptsRequests(s *State) bool {
	return s.Snap.Acting() && s.Snap.Annotations.Marker.Handover && s.Snap.Record.Holder != c.Self && !c.ignoresRequests(s)
}

// ignoresRequests reports whether the holder has renewed for a lease next to own requests (or longer next to
// an accepted one) without answering.
//
// Then its marker is not its own: another elector with the identity of an incumbent leader renews the record
// in the same term and keeps the annotations. A renewal is guarded by its version, so its writer has read the
// request. An incumbent leader that renews also answers, at the latest after its Patience. After accepting, it
// stops renewing at its StopLimit. If the holder is an incumbent leader nevertheless, it loses its term early:
// the challenger preempts it and settles.
func (c Config) ignoresRequests(s *State) bool {
	longest := c.lease(s.Snap.Record)
	if s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted {
		longest += c.StopLimit
	}
	return s.Requesting.Ignored > longest
}

// requestFrom returns from when there is a reason to request a handover: higher rank without a hold, or an unfit leader. Never: there
// is none.
func (c Config) requestFrom(s *State) Instant {
	switch {
	case !c.acceptsRequests(s) || s.Unfit || s.Barred:
	case s.Snap.Annotations.Marker.Unfit:
		return c.uncoordinatedTime(s)
	case !c.External && c.outranks(s):
		return max(c.uncoordinatedTime(s), s.holdEnds())
	}
	return Never
}

// WantsHandover reports whether there is a reason to request a handover now. It is also true if a request waits for its turn or was
// refused.
func (c Config) WantsHandover(s *State, now Instant) bool {
	return s.Phase == Following && c.requestFrom(s) <= now
}

// decideRequest sends a handover request and waits for the handover. A challenger with a pending request also
// polls, because its watch may be late and a nominee has only a RetryPeriod.
func (c Config) decideRequest(s *State, now ClockReading, a Action) Action {
	at := max(c.requestTime(s, now.Mono).After(c.turn(s)), s.Effort.Requests.Next)
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
func (c Config) answerPoll(s *State, now ClockReading) time.Duration {
	switch overdue := now.Mono >= s.Since.Record.After(2*c.Retry); {
	case !s.Watch:
		return c.Retry / 4
	case overdue:
		return c.Retry
	}
	return c.Retry / 2
}

// requestTime returns the earliest time for an own request: not while the own one, one of an operator, or one
// of equal or higher rank is pending.
func (c Config) requestTime(s *State, now Instant) Instant {
	r := s.Snap.Annotations.Request
	if s.requested(now) && (r.Identity == c.Self || r.Reason == record.ForOperator || !c.Ranked || !Outranks(c.Key, r.Key, s.Default)) {
		if r.Accepted {
			return Never
		}
		return s.requestEnds()
	}
	return max(s.Requesting.NotBefore, s.reasonToRequest(now))
}

// reasonToRequest returns when the reason for a request began.
func (s *State) reasonToRequest(now Instant) Instant {
	at := max(s.Since.Record, s.Since.Default)
	if ends := s.holdEnds(); ends <= now {
		at = max(at, ends)
	}
	return at
}

// request returns the request to write.
func (c Config) request(s *State) Request {
	reason := record.ForDefaultRevision
	switch {
	case !c.outranks(s):
		reason = record.ForUnfit
	case strings.TrimPrefix(c.Key, RemotePrefix) == strings.TrimPrefix(s.Snap.Record.Key, RemotePrefix):
		reason = record.ForLocalOverRemote
	}
	return Request{
		Identity: c.Self, Key: c.Key, Reason: reason, Requester: c.Self,
		Holder: s.Snap.Record.Holder, Transitions: s.Snap.Record.Transitions,
		// This is enough for a leader that misses one renewal. The number differs each time, because a write
		// that changes no byte is not stored.
		Seconds: int((2*c.Retry+time.Second-1)/time.Second) + int(s.Requesting.Count%requestLengths),
	}
}

// requestSent delays the next request, longer after each request that did not lead to a term.
func (c Config) requestSent(h Handover, now Instant) Handover {
	h.Requesting.Wanted = true
	h.Requesting.NotBefore = now.After(min(c.Lease, c.Retry<<min(h.Requesting.Count, maxBackOffShift)))
	if h.Requesting.Count++; h.Requesting.Count == maxBackOffShift+requestLengths {
		h.Requesting.Count = maxBackOffShift // the same delay, and another duration than the latest requests
	}
	return h
}

// judge returns the decision of a leader about the request: accept it, refuse it with a reason, or decide
// again at the returned time, when its own watcher had time to sync. A refusal is reconsidered when the
// default changes.
func (c Config) judge(s *State, now Instant) (accept bool, refuse string, again Instant) {
	r := s.Snap.Annotations.Request
	patienceEnds := s.Since.Request.After(c.Patience)
	switch {
	case s.Phase == Settling || !s.Snap.Addressed() || r.Accepted || now >= s.requestEnds():
		return false, "", Never
	case c.grants(s, now):
		return true, "", now
	case r.Refused != "":
		return false, "", Never
	case s.Failed.include(r.Identity, now):
		return false, refusedFailed, now
	case now < s.holdEnds():
		return false, refusedHeld, now
	case !c.ranks(s, now):
		return false, refusedByRank, now
	case now < patienceEnds:
		return false, "", patienceEnds
	}
	return false, refusedNoRank, now
}

// grants reports whether the leader should fulfill the request: of an operator, of any candidate while unfit,
// or of a higher rank without a hold. Only an operator may nominate a challenger that has just failed.
func (c Config) grants(s *State, now Instant) bool {
	r := s.Snap.Annotations.Request
	switch {
	case r.Reason == record.ForOperator:
		return true
	case s.Failed.include(r.Identity, now):
		return false
	}
	return s.Unfit || c.Ranked && Outranks(r.Key, c.Key, s.Default) && now >= s.holdEnds() && c.ranks(s, now)
}

// handsOver reports whether this candidate can judge a request: its watcher has synced, or there are no ranks.
// With a KeyComparisonFunc it can hand over only while unfit.
func (c Config) handsOver(s *State) bool {
	if c.Ranked {
		return s.Default.Synced
	}
	return !c.External || s.Unfit
}

// coolDown returns how long this candidate does not campaign after it fulfilled the request: as the operator
// requested, or a RetryPeriod while unfit.
func (c Config) coolDown(s *State) time.Duration {
	r := s.Snap.Annotations.Request
	switch {
	case r.Reason == record.ForOperator && r.Identity == "":
		return max(c.Retry, record.HoldTime(r.HoldSeconds))
	case s.Unfit:
		return c.Retry
	}
	return 0
}

// handoverTarget returns the request of the candidate to hand over to. The zero value: release instead.
func (c Config) handoverTarget(s *State, now Instant) Request {
	r := s.Snap.Annotations.Request
	switch {
	case !c.ownsTerm(s):
	case r.Identity != "" && s.requested(now) && (r.Accepted || c.grants(s, now)):
		return r
	case c.Coordinated && c.prefersOther(s, now):
		return Request{Identity: s.Snap.Preferred}
	}
	return Request{}
}

// nomination returns the write of a handover.
func (c Config) nomination(s *State, r Request, now ClockReading) (Record, Annotations) {
	stamp := s.Snap.Record.Renewed.Next(now.Wall, 0)
	next := Record{
		Holder: r.Identity, Key: r.Key, Lease: c.nominationLease(),
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

// FailedNominees are challengers that were nominated and did not acquire the lock, for example because a
// permission is missing. Each candidate observes this, so the next leader refuses their requests too.
type FailedNominees struct {
	Names [4]string // latest first; if it is full, the requests of all challengers are refused
	Until Instant   // requests are refused until then
	Steps uint8     // failures in a row
}

const (
	refusalTime    = 10 * time.Second // after the first failure; doubled with each further one
	maxRefusalTime = 5 * time.Minute
)

// include reports whether requests of the challenger are refused now.
func (f FailedNominees) include(challenger string, now Instant) bool {
	return now < f.Until && (f.Names[len(f.Names)-1] != "" || slices.Contains(f.Names[:], challenger))
}

// failedNominees returns the failed nominees after next, which follows s.
func (c Config) failedNominees(s *State, next Snapshot, now Instant) FailedNominees {
	f := s.Failed
	nominee := s.Snap.Record.Holder
	replaced := next.Exists && next.Content == record.Readable && next.UID == s.Snap.UID && next.Version > s.Snap.Version
	switch same := next.Record.Holder == nominee; {
	case !s.Snap.Nominated() || s.Snap.ByCoordinator() || nominee == c.Self || !replaced || same && next.Nominated():
		return f
	case same:
		return FailedNominees{}
	}
	if f.Until.After(maxRefusalTime) < now { // older problems
		f = FailedNominees{}
	}
	if !slices.Contains(f.Names[:], nominee) {
		f.Names = [4]string{nominee, f.Names[0], f.Names[1], f.Names[2]}
	}
	f.Until = now.After(min(refusalTime<<f.Steps, maxRefusalTime))
	f.Steps = min(f.Steps+1, maxBackOffShift)
	return f
}
