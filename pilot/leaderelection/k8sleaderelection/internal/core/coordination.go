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

// coordinatorLeases is the number of lease durations after which a coordinator that does not act is ignored.
const coordinatorLeases = 3

// preferenceTime is how long a preference counts. A coordinator also waits 5 s for the preferred candidate.
const preferenceTime = 5 * time.Second

// Coordination has the view that this candidate has of the coordinator.
type Coordination struct {
	Absent bool // the process reported that the coordinator is absent
	// Alone: this candidate acquired the lock after no coordinator had acted for three leases, or the leader recorded that in its
	// marker. It lasts until a coordinator writes.
	Alone bool
	// CoordinatorSeen: a coordinator has named a holder. Without that, a strategy may be the work of a stranger.
	CoordinatorSeen bool
	GiveWay         bool // a coordinator has begun to prefer another candidate in this term
}

// observeCoordination processes nominations and preferences of a coordinator.
func (c Config) observeCoordination(s *State, v sighting) Coordination {
	o := s.Coordination
	if v.Preferred != s.Snap.Preferred {
		o.GiveWay = v.Held() && v.Record.Holder == c.Self && s.Own.wrote(v.Snapshot)
	}
	switch {
	case s.CoordinatorWrote(v.Snapshot):
		o.Alone = false
	case v.Acting() && v.Annotations.Marker.Uncoordinated && !s.Own.wrote(v.Snapshot):
		o.Alone = true
	case v.Addressed() && v.Annotations.Request.Refused == refusedByRank:
		o.Alone = false // the leader has seen a coordinator
	}
	o.CoordinatorSeen = o.CoordinatorSeen || v.ByCoordinator()
	return o
}

// CoordinatorWrote reports whether next, which follows s, has a nomination, a new preference, or the strategy that the lock did not have.
func (s *Sight) CoordinatorWrote(next Snapshot) bool {
	return next.ByCoordinator() || next.Preferred != "" && next.Preferred != s.Snap.Preferred || next.Strategy && !s.Snap.Strategy && s.Known != Unread
}

// followsCoordinator reports whether strategy and preference count. Strangers can write both.
func (c Config) followsCoordinator(s *State) bool {
	return s.Snap.Strategy && !s.Absent && !s.Alone && (c.Coordinated || s.CoordinatorSeen)
}

// prefersOther reports whether the holder has to step down for the candidate that a coordinator prefers. A
// hold takes precedence. A preference ends one term only, so it does not count if it is older than the term.
func (c Config) prefersOther(s *State, now Instant) bool {
	return s.GiveWay && c.followsCoordinator(s) && s.Snap.Preferred != "" && s.Snap.Preferred != c.Self && now >= s.holdEnds() && !s.Failed.include(s.Snap.Preferred, now)
}

// unprefers reports whether a holder removes the preference, because the preferred candidate did not acquire
// the lock in time.
func (c Config) unprefers(s *State, now Instant) bool {
	return s.Snap.Preferred != "" && s.Phase < Draining && now >= s.Since.Preferred.After(preferenceTime)
}

// uncoordinatedTime returns when a candidate in a coordinated election may act as without a coordinator,
// because the coordinator is absent or does not act.
func (c Config) uncoordinatedTime(s *State) Instant {
	if !c.Coordinated || c.alone(s) {
		return 0
	}
	needed := s.Since.Record
	if s.Snap.Content == record.Unreadable || s.Snap.Held() {
		needed = c.ExpiresAt(s)
	}
	return needed.After(coordinatorLeases * c.Lease)
}

// ranks reports whether a leader fulfills requests by rank. If it has never seen a coordinator, for example because it has restarted,
// the challenger knows better.
func (c Config) ranks(s *State, now Instant) bool {
	return !s.CoordinatorSeen || now >= c.uncoordinatedTime(s)
}

// alone reports whether a leader acts as without a coordinator.
func (c Config) alone(s *State) bool { return c.Coordinated && (s.Absent || s.Alone) }

// Uncoordinated reports whether a candidate in a coordinated election acts as without a coordinator now.
func (c Config) Uncoordinated(s *State, now Instant) bool {
	return c.Coordinated && s.Known != Unread && now >= c.uncoordinatedTime(s)
}
