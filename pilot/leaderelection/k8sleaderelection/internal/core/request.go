package core

import (
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Reasons of a refusal.
const (
	refusedNoRank = "the challenger does not outrank the holder, by the default revision that the holder has seen"
	refusedFailed = "the challenger was nominated and did not acquire the lock"
	refusedHeld   = "a hold of an operator is in effect"
	refusedByRank = "a coordinator selects the leader of this election"
)

// maxRequestSeconds limits how long a request can be pending.
const maxRequestSeconds = 3600

// requestLengths is the number of different durations of requests in a row.
const requestLengths = 32

// requested reports whether the leader has to process a request: it is accepted, or neither refused nor
// expired.
func (s State) requested(now Instant) bool {
	r := s.Snap.Annotations.Request
	return s.Snap.Addressed() && (r.Accepted || r.Refused == "" && now < s.requestEnds())
}

// requestEnds returns the expiry of the request, counted from when it was first seen.
func (s State) requestEnds() Instant {
	seconds := min(max(s.Snap.Annotations.Request.Seconds, 0), maxRequestSeconds)
	return s.Since.Request.After(time.Duration(seconds) * time.Second)
}

// acceptsRequests reports whether the holder is a leader that hands over on request.
func (c Config) acceptsRequests(s State) bool {
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
func (c Config) ignoresRequests(s State) bool {
	longest := c.lease(s.Snap.Record)
	if s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted {
		longest += c.StopLimit
	}
	return s.Requesting.Ignored > longest
}

// countIgnored adds the time during which the holder renewed instead of answering. Another term, another marker
// or an answer resets it. AcquireTime distinguishes terms at the maximum of transitions. Requests of other
// challengers and expired requests do not count.
func (c Config) countIgnored(s State, next Snapshot, now Instant) State {
	was := s.Snap
	r := next.Annotations.Request
	if !next.Acting() || !record.SameHolder(was, next) || was.Annotations.Marker != next.Annotations.Marker || was.Record.Acquired != next.Record.Acquired || next.Version < was.Version ||
		next.Addressed() && (r.Refused != "" || r.Accepted != was.Annotations.Request.Accepted) {
		s.Requesting.Ignored = 0
		return s
	}
	pending := s.requested(now) && (r.Accepted || r.Identity == c.Self)
	if pending && r == was.Annotations.Request && was.Record != next.Record {
		// A longer time includes a pause of this process.
		s.Requesting.Ignored += min(max(s.Since.Record, s.Since.Request).Until(now), 2*c.Retry)
	}
	return s
}

// mayRequest reports whether there is a reason to request a handover: higher rank without a hold, or an unfit
// leader.
func (c Config) mayRequest(s State, now Instant) bool {
	return c.acceptsRequests(s) && !s.Unfit && !s.Barred && now >= c.uncoordinatedTime(s) &&
		(s.Snap.Annotations.Marker.Unfit || !c.External && c.outranks(s) && now >= s.holdEnds())
}

// WantsHandover is mayRequest for reports. It is also true if a request waits for its turn or was refused.
func (c Config) WantsHandover(s State, now Instant) bool {
	return s.Phase == Following && c.mayRequest(s, now)
}

// requestTime returns the earliest time for an own request: not while the own one, one of an operator, or one
// of equal or higher rank is pending.
func (c Config) requestTime(s State, now Instant) Instant {
	r := s.Snap.Annotations.Request
	if s.requested(now) && (r.Identity == c.Self || r.Reason == record.ForOperator || !c.Ranked || !Outranks(c.Key, r.Key, s.Default)) {
		if r.Accepted {
			return Never
		}
		return s.requestEnds()
	}
	return s.Requesting.NotBefore
}

// request returns the request to write.
func (c Config) request(s State) Request {
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

// judge returns the decision of a leader about the request: accept it, refuse it with a reason, or decide
// again at the returned time, when its own watcher had time to sync. A refusal is reconsidered when the
// default changes.
func (c Config) judge(s State, now Instant) (accept bool, refuse string, again Instant) {
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
	case now < c.uncoordinatedTime(s):
		return false, refusedByRank, now
	case now < patienceEnds:
		return false, "", patienceEnds
	}
	return false, refusedNoRank, now
}

// grants reports whether the leader should fulfill the request: of an operator, of any candidate while unfit,
// or of a higher rank without a hold. Only an operator may nominate a challenger that has just failed.
func (c Config) grants(s State, now Instant) bool {
	r := s.Snap.Annotations.Request
	switch {
	case r.Reason == record.ForOperator:
		return true
	case s.Failed.include(r.Identity, now):
		return false
	}
	return s.Unfit || c.Ranked && Outranks(r.Key, c.Key, s.Default) && now >= max(s.holdEnds(), c.uncoordinatedTime(s))
}

// coolDown returns how long this candidate does not campaign after it fulfilled the request: as the operator
// requested, or a RetryPeriod while unfit.
func (c Config) coolDown(s State) time.Duration {
	r := s.Snap.Annotations.Request
	switch {
	case r.Reason == record.ForOperator && r.Identity == "":
		return max(c.Retry, record.HoldTime(r.HoldSeconds))
	case s.Unfit:
		return c.Retry
	}
	return 0
}
