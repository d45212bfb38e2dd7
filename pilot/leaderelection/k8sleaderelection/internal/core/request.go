package core

import "time"

// Request is a challenger's: it asks the leader to drain and to pass the lock on. The
// zero Request is none. Nobody believes one that is not addressed to the present term.
type Request struct {
	Identity, Key string // the challenger's
	Reason        string
	Requester     string
	Holder        string // whom it is addressed to, and in which term
	Transitions   int
	Seconds       int // for which it waits to be accepted, as each reader counts
	Accepted      bool
	Refused       string // the leader's reason; empty: not refused
}

// ForDefaultRevision and ForLocalOverRemote are a request's reasons.
const (
	ForDefaultRevision = "default-revision"
	ForLocalOverRemote = "local-over-remote"
)

// Why a leader refuses.
const refusedNoRank = "the challenger does not outrank the holder by the holder's view of the default revision"

// maxRequestSeconds bounds what a record can make others wait.
const maxRequestSeconds = 3600

// renewed reports whether r was written after old by a challenger: it is another one,
// or asks again after a refusal. What its leader notes on it makes no new request.
func (r Request) renewed(old Request) bool {
	again := old.Refused != "" && r.Refused == "" && !r.Accepted
	r.Accepted, r.Refused, old.Accepted, old.Refused = false, "", false, ""
	return again || r != old
}

// addressed reports whether a request stands that the present term's leader was asked.
func (s Snapshot) addressed() bool {
	r := s.Notes.Request
	return r.Identity != "" && s.held() && r.Holder == s.Record.Holder && r.Transitions == s.Record.Transitions &&
		r.Identity != s.Record.Holder
}

// requested reports whether a request is there that the leader has to heed: addressed
// to its term, and accepted, or neither refused nor run out.
func (s State) requested(now Instant) bool {
	r := s.Snap.Notes.Request
	if !s.Snap.addressed() {
		return false
	}
	return r.Accepted || r.Refused == "" && now < s.requestEnds()
}

// requestEnds is when the request that stands has run out, counted from when we first
// saw it.
func (s State) requestEnds() Instant {
	seconds := min(max(s.Snap.Notes.Request.Seconds, 0), maxRequestSeconds)
	return s.RequestAt.After(time.Duration(seconds) * time.Second)
}

// canAsk reports whether the holder is a leader that hands over when it is asked.
func (c Config) canAsk(s State) bool {
	return c.Ranked && s.Snap.acting() && s.Snap.Notes.Marker.Handover && s.Snap.Record.Holder != c.Self
}

// askAt is from when on we may ask the leader to hand over: not while our own request
// stands, nor one that we do not outrank.
func (c Config) askAt(s State, now Instant) Instant {
	r := s.Snap.Notes.Request
	if s.requested(now) && (r.Identity == c.Self || !Outranks(c.Key, r.Key, s.Default)) {
		if r.Accepted {
			return Never
		}
		return s.requestEnds()
	}
	return s.AskAt
}

// request is what we would write.
func (c Config) request(s State) Request {
	reason := ForDefaultRevision
	ours, _ := splitKey(c.Key)
	if theirs, _ := splitKey(s.Snap.Record.Key); theirs == ours {
		reason = ForLocalOverRemote
	}
	return Request{
		Identity: c.Self, Key: c.Key, Reason: reason, Requester: c.Self,
		Holder: s.Snap.Record.Holder, Transitions: s.Snap.Record.Transitions,
		// Long enough for a leader that misses one renewal; and another number each
		// time, because a write that changes no byte is none.
		Seconds: int((2*c.Retry+time.Second-1)/time.Second) + int(s.Asks),
	}
}

// judge says what a leader makes of the request that stands: accept it, or refuse it
// once its own watcher had the time to catch up. Both false: look again at the instant.
// A refusal is judged anew when the default changes.
func (c Config) judge(s State, now Instant) (accept, refuse bool, again Instant) {
	r := s.Snap.Notes.Request
	if !s.Snap.addressed() || r.Accepted || now >= s.requestEnds() {
		return false, false, Never
	}
	if Outranks(r.Key, c.Key, s.Default) {
		return true, false, now
	}
	if r.Refused != "" {
		return false, false, Never
	}
	at := s.RequestAt.After(c.Patience)
	return false, now >= at, at
}

// fulfils reports whether the request that stands is one to hand over to.
func (c Config) fulfils(s State, now Instant) bool {
	r := s.Snap.Notes.Request
	return c.ours(s) && s.requested(now) && (r.Accepted || Outranks(r.Key, c.Key, s.Default))
}
