package core

import (
	"strings"
	"time"
)

// Request is a challenger's: it asks the leader to drain and to pass the lock on. The
// zero Request is none. One that is not addressed to the present term does not count.
type Request struct {
	Identity, Key string // the challenger's
	Reason        string
	Requester     string
	Note          string // the operator's own words
	Holder        string // whom it is addressed to, and in which term
	Transitions   int
	Seconds       int // for which it waits to be accepted, as each reader counts
	Accepted      bool
	Refused       string // the leader's reason; empty: not refused
	// HoldSeconds is an operator's: how long the new holder stays whatever its rank or,
	// without Identity, how long the one that steps down does not campaign.
	HoldSeconds int
}

// A request's reasons. One of an operator needs no rank, and without Identity it asks
// the leader to step down.
const (
	ForDefaultRevision = "default-revision"
	ForLocalOverRemote = "local-over-remote"
	ForUnfit           = "unfit"
	ForOperator        = "operator"
)

// Why a leader refuses.
const (
	refusedNoRank = "the challenger does not outrank the holder by the holder's view of the default revision"
	refusedHeld   = "an operator's hold stands: rank does not count"
	refusedByRank = "a coordinator decides who leads this election: rank does not count"
)

// maxRequestSeconds bounds what a record can make others wait.
const maxRequestSeconds = 3600

// requestLengths is how many requests in a row differ in how long they stand.
const requestLengths = 32

// renewed reports whether r was written after old by a challenger: it is another one,
// or asks again after a refusal. What its leader notes on it makes no new request.
func (r Request) renewed(old Request) bool {
	again := old.Refused != "" && r.Refused == "" && !r.Accepted
	r.Accepted, r.Refused, old.Accepted, old.Refused = false, "", false, ""
	return again || r != old
}

// AddressedTo reports whether the record is of the term whose leader was asked.
func (r Request) AddressedTo(record Record) bool { return record.isTerm(r.Holder, r.Transitions) }

// Addressed reports whether a request stands that the present term's leader was asked.
func (s Snapshot) Addressed() bool {
	r := s.Annotations.Request
	return s.Held() && !s.bySuccessors() && r.AddressedTo(s.Record) &&
		r.Identity != s.Record.Holder && (r.Identity != "" || r.Reason == ForOperator)
}

// requested reports whether a request is there that the leader has to answer: addressed
// to its term, and accepted, or neither refused nor run out.
func (s State) requested(now Instant) bool {
	r := s.Snap.Annotations.Request
	return s.Snap.Addressed() && (r.Accepted || r.Refused == "" && now < s.requestEnds())
}

// requestEnds is when the request that stands has run out, counted from when we first
// saw it.
func (s State) requestEnds() Instant {
	seconds := min(max(s.Snap.Annotations.Request.Seconds, 0), maxRequestSeconds)
	return s.Since.Request.After(time.Duration(seconds) * time.Second)
}

// canAsk reports whether the holder is a leader that hands over when it is asked.
func (c Config) acceptsRequests(s State) bool {
	return s.Snap.Acting() && s.Snap.Annotations.Marker.Handover && s.Snap.Record.Holder != c.Self && !c.ignoresRequests(s)
}

// A marker can be another's: a peer that has come under the identity of one of ours renews
// the record as it finds it, in the same term, and never answers. ignoresRequests reports whether the
// holder is such a one: it has renewed for a lease beside requests of ours, or for longer
// beside one that is accepted, and has neither answered nor handed over.
//
// A renewal is guarded by the version that it was decided on, so whoever writes the record
// beside a request has read the request. A leader of ours that can renew also answers, leading
// or draining, at the latest after its Patience (see judge), unless its writes fail for as long as
// the request waits. One that has accepted stops renewing at its StopLimit. Should the holder
// be one of ours nevertheless, it loses its term early: it is preempted, and we settle until
// it has ended, as with any holder.
func (c Config) ignoresRequests(s State) bool {
	longest := c.lease(s.Snap.Record)
	if s.Snap.Addressed() && s.Snap.Annotations.Request.Accepted {
		longest += c.StopLimit
	}
	return s.Requesting.Ignored > longest
}

// countIgnored adds up for how long the holder has been renewing where an answer should be. Another
// term, another marker and any answer begin anew; at the end of the count all terms have one number,
// and when they began tells them apart. Of what others have asked, and of what has
// run out, a leader need not take notice.
func (c Config) countIgnored(s State, next Snapshot, now Instant) State {
	was, r := s.Snap, next.Annotations.Request
	if !next.Acting() || !sameHolder(was, next) || was.Annotations.Marker != next.Annotations.Marker || was.Record.Acquired != next.Record.Acquired || next.Version < was.Version ||
		next.Addressed() && (r.Refused != "" || r.Accepted != was.Annotations.Request.Accepted) {
		s.Requesting.Ignored = 0
		return s
	}
	stands := s.requested(now) && (r.Accepted || r.Identity == c.Self)
	if stands && r == was.Annotations.Request && was.Record != next.Record {
		// More than a live holder's pause may have been ours.
		s.Requesting.Ignored += min(max(s.Since.Record, s.Since.Request).Until(now), 2*c.Retry)
	}
	return s
}

// mayAsk reports whether there is a reason to ask the leader to hand over: we outrank it
// and no hold stands, or it has said that it is unfit.
func (c Config) mayRequest(s State, now Instant) bool {
	return c.acceptsRequests(s) && !s.Unfit && now >= c.uncoordinatedTime(s) &&
		(s.Snap.Annotations.Marker.Unfit || !c.External && c.outranks(s) && now >= s.holdEnds())
}

// WantsHandover is mayAsk for those who report it: a request that waits for its turn, or was refused, is no longer one
// that was sent, and there is a reason all the same.
func (c Config) WantsHandover(s State, now Instant) bool {
	return s.Phase == Following && c.mayRequest(s, now)
}

// askAt is from when on we may ask the leader to hand over: not while our own request
// stands, nor an operator's, nor one that we do not outrank.
func (c Config) requestTime(s State, now Instant) Instant {
	r := s.Snap.Annotations.Request
	if s.requested(now) && (r.Identity == c.Self || r.Reason == ForOperator || !c.Ranked || !Outranks(c.Key, r.Key, s.Default)) {
		if r.Accepted {
			return Never
		}
		return s.requestEnds()
	}
	return s.Requesting.NotBefore
}

// request is the request that we would write.
func (c Config) request(s State) Request {
	reason := ForDefaultRevision
	switch {
	case !c.outranks(s):
		reason = ForUnfit
	case strings.TrimPrefix(c.Key, RemotePrefix) == strings.TrimPrefix(s.Snap.Record.Key, RemotePrefix):
		reason = ForLocalOverRemote
	}
	return Request{
		Identity: c.Self, Key: c.Key, Reason: reason, Requester: c.Self,
		Holder: s.Snap.Record.Holder, Transitions: s.Snap.Record.Transitions,
		// Long enough for a leader that misses one renewal; and another number each
		// time, because a write that changes no byte is none.
		Seconds: int((2*c.Retry+time.Second-1)/time.Second) + int(s.Requesting.Count%requestLengths),
	}
}

// judge says what a leader makes of the request that stands: accept it, or refuse it
// for a reason, once its own watcher had the time to catch up. Neither: look again at the
// instant. A refusal is judged anew when the default changes.
func (c Config) judge(s State, now Instant) (accept bool, refuse string, again Instant) {
	r, ripe := s.Snap.Annotations.Request, s.Since.Request.After(c.Patience)
	switch {
	case !s.Snap.Addressed() || r.Accepted || now >= s.requestEnds():
		return false, "", Never
	case c.grants(s, now):
		return true, "", now
	case r.Refused != "":
		return false, "", Never
	case now < s.holdEnds():
		return false, refusedHeld, now
	case now < c.uncoordinatedTime(s):
		return false, refusedByRank, now
	case now < ripe:
		return false, "", ripe
	}
	return false, refusedNoRank, now
}

// grants reports whether the leader's request is one to fulfil: an operator's; anybody's
// while we are unfit; otherwise that of a higher rank, unless an operator holds us here.
func (c Config) grants(s State, now Instant) bool {
	r := s.Snap.Annotations.Request
	return r.Reason == ForOperator || s.Unfit ||
		c.Ranked && Outranks(r.Key, c.Key, s.Default) && now >= max(s.holdEnds(), c.uncoordinatedTime(s))
}

// coolDown is for how long we leave the lock alone after the request that we accepted:
// an operator says it, and one that was unfit does not come back with the first good
// answer.
func (c Config) coolDown(s State) time.Duration {
	r := s.Snap.Annotations.Request
	switch {
	case r.Reason == ForOperator && r.Identity == "":
		return max(c.Retry, holdTime(r.HoldSeconds))
	case s.Unfit:
		return c.Retry
	}
	return 0
}

// fulfils reports whether the request that stands is one to hand over to.
func (c Config) fulfillsRequest(s State, now Instant) bool {
	r := s.Snap.Annotations.Request
	return r.Identity != "" && c.ownsTerm(s) && s.requested(now) && (r.Accepted || c.grants(s, now))
}
