package core

import "cmp"

// In a coordinated election (KEP-4355) somebody beside the candidates chooses: a coordinator
// names the holder of a lock that is free or has expired, and beside a live holder names the one
// that it would rather have. Candidates create nothing, take nothing and ask nobody; they wait until they are named.
//
// To be named is to be nominated, and no more: a coordinator that goes by its wall clock
// can name a second one while the first lives. So a nominee takes the lock by a write of its own and then settles,
// unless it knows that the former term has ended.

// coordinatorLeases is for how many lease durations a coordinator may leave a lock that needs it alone, or be known to be
// gone, before the rules without one count.
const coordinatorLeases = 3

// ByCoordinator reports whether the recorded holder was named by a coordinator and has not written
// itself. Such a name begins no term: the transitions are those of the term before.
func (s Snapshot) ByCoordinator() bool { return s.Nominated() && s.Annotations.Nominated.Uncounted }

// promisedToOther reports whether a coordinator means a free lock for another than self, and has yet to write that one in. A
// candidate that took it meanwhile would have to pass it on again.
func (s Snapshot) promisedToOther(self string) bool {
	return s.Strategy && s.Content == Readable && !s.Held() && s.Preferred != "" && s.Preferred != self
}

// yields reports whether the holder has to give way to the candidate that a coordinator prefers. An operator's hold
// goes before that, as it does before rank.
func (c Config) prefersOther(s State, now Instant) bool {
	l := s.Snap
	return l.Strategy && l.Held() && !l.bySuccessors() && l.Preferred != "" && l.Preferred != l.Record.Holder && now >= s.holdEnds()
}

// yield ends a term for the candidate that a coordinator prefers. A coordinated holder hands over to it;
// any other holder steps down, and the coordinator names a holder by its own choice.
func (c Config) giveWay(s State, now ClockReading) State {
	if c.Coordinated {
		s.Drain.Kind = DrainToHandOver
		return c.drain(s, now, HandingOver)
	}
	s.Drain.Kind = DrainToStepDown
	return c.drain(s, now, Yielding)
}

// successor is whom to hand over to in place of a release; the zero Request: nobody.
func (c Config) handoverTarget(s State, now Instant) Request {
	switch {
	case c.fulfillsRequest(s, now):
		return s.Snap.Annotations.Request
	case c.Coordinated && c.ownsTerm(s) && c.prefersOther(s, now):
		return Request{Identity: s.Snap.Preferred}
	}
	return Request{}
}

// uncoordinatedFrom is from when on a candidate in a coordinated election counts as if there were no coordinator: one that is
// needed and does nothing for so long is not there, and the elector's user reports one that is gone.
func (c Config) uncoordinatedTime(s State) Instant {
	if !c.Coordinated {
		return 0
	}
	needed := s.Since.Record
	if s.Snap.Content == Unreadable || s.Snap.Held() {
		needed = c.ExpiresAt(s)
	}
	at := needed.After(coordinatorLeases * c.Lease)
	if s.Absent != 0 {
		at = min(at, s.Absent.After(coordinatorLeases*c.Lease))
	}
	return at
}

// Uncoordinated reports whether a candidate in a coordinated election counts, now, as if there were no coordinator. Of a leader
// it says nothing unless a Coordinator input has reported that: a leader needs none.
func (c Config) Uncoordinated(s State, now Instant) bool {
	return c.Coordinated && s.Known != Unread && now >= c.uncoordinatedTime(s)
}

// absence notes since when the coordinator is known to be gone.
func (s State) absence(in Input) Instant {
	if !in.Absent {
		return 0
	}
	return cmp.Or(s.Absent, max(1, in.Now.Mono))
}

// coordinatedOpening is when a candidate may take a coordinated election's lock, instead of at. One that waits for no coordinator
// leaves it a lease for what it has said already.
func (c Config) coordinatedAcquireTime(s State, at Instant, why Reason) (Instant, Reason) {
	switch alone := c.uncoordinatedTime(s); {
	case why == Reclaimed:
	case !c.Coordinated && s.Snap.promisedToOther(c.Self):
		return max(at, s.Since.Record.After(c.Lease)), NoCoordinator
	case c.Coordinated && alone > at:
		return c.withRankDelay(s, alone), NoCoordinator
	}
	return at, why
}
