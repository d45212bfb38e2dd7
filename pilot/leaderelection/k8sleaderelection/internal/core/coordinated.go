package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// In a coordinated election (KEP-4355) a coordinator names the holder of a free or expired lock, and a
// preferred candidate while a holder lives. Candidates wait until they are named.
//
// A coordinator uses its wall clock, so it can name a candidate while the previous leader lives. The nominee
// therefore acquires the lock by an own write and settles, unless it knows that the previous term has ended.

// coordinatorLeases is the number of lease durations after which a coordinator that is absent or does not act
// is ignored.
const coordinatorLeases = 3

// followsCoordinator reports whether strategy and preference count. Strangers can write both.
func (c Config) followsCoordinator(s State) bool {
	return s.Snap.Strategy && (c.Coordinated || s.CoordinatorSeen)
}

// preferenceTime is how long a preference counts. A coordinator also waits 5 s for the preferred candidate.
const preferenceTime = 5 * time.Second

// prefersOther reports whether the holder has to step down for the candidate that a coordinator prefers. A
// hold takes precedence. A preference ends one term only, so it does not count if it is older than the term.
func (c Config) prefersOther(s State, now Instant) bool {
	return s.GiveWay && c.followsCoordinator(s) && s.Snap.Preferred != "" && s.Snap.Preferred != c.Self && now >= s.holdEnds() && !s.Failed.include(s.Snap.Preferred, now)
}

// unprefers reports whether a holder removes the preference, because the preferred candidate did not acquire
// the lock in time.
func (c Config) unprefers(s State, now Instant) bool {
	return s.Snap.Preferred != "" && s.Phase < Draining && now >= s.Since.Preferred.After(preferenceTime)
}

// handoverTarget returns the request of the candidate to hand over to. The zero value: release instead.
func (c Config) handoverTarget(s State, now Instant) Request {
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

// uncoordinatedTime returns when a candidate in a coordinated election may act as without a coordinator,
// because the coordinator is absent or does not act.
func (c Config) uncoordinatedTime(s State) Instant {
	if !c.Coordinated {
		return 0
	}
	needed := s.Since.Record
	if s.Snap.Content == record.Unreadable || s.Snap.Held() {
		needed = c.ExpiresAt(s)
	}
	at := needed.After(coordinatorLeases * c.Lease)
	if s.Absent != 0 {
		at = min(at, s.Absent.After(coordinatorLeases*c.Lease))
	}
	return at
}

// Uncoordinated reports whether a candidate in a coordinated election acts as without a coordinator now. For a
// leader, only a Coordinator input counts.
func (c Config) Uncoordinated(s State, now Instant) bool {
	return c.Coordinated && s.Known != Unread && now >= c.uncoordinatedTime(s)
}

// coordinatedAcquireTime adjusts the time of acquireTime in a coordinated election. An uncoordinated candidate
// leaves a lease for the preferred candidate.
func (c Config) coordinatedAcquireTime(s State, at Instant, why Reason) (Instant, Reason) {
	switch uncoordinated := c.uncoordinatedTime(s); {
	case why == Reclaimed:
	case !c.Coordinated && why == Free && c.followsCoordinator(s) && s.Snap.Preferred != "" && s.Snap.Preferred != c.Self:
		return max(at, s.Since.Record.After(c.Lease)), NoCoordinator
	case c.Coordinated && uncoordinated > at:
		return c.withRankDelay(s, uncoordinated), NoCoordinator
	}
	return at, why
}
