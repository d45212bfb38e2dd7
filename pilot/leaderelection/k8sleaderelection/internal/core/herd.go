package core

import (
	"fmt"
	"hash/fnv"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Herd limits the writes of candidates of equal rank that react to the same event, such as a release. Only one of
// these writes can be stored. Each candidate waits for a random part of its window, and does not send if another
// candidate wrote first.
//
// With N candidates and a window W, the first one writes after W/N, and its write reaches the others after a latency
// L. So N·L/W candidates conflict. A candidate knows neither N nor L, but it sees T = W/N + L, the time from the event
// to the write of another candidate. It loses a race with the probability L/W, and then multiplies its window. Any other
// event shortens the window by half of T. So the window grows by a few times L per event and shrinks by T/2. Both are
// equal if W/N is a few times L, for each N: then less than one candidate conflicts.
//
// A candidate waits only after it lost several races in a row. So two or three candidates almost never wait. In a herd,
// the winner of the last race and new candidates do not wait either, so the windows grow to their limit.
//
// A lower rank waits for the rank delay only. Most candidates of the highest rank may have gone since they learned their windows.
// Therefore a turn t of the highest rank is shortened to less than a limit m, by t·m/(t+m): the first turns of a herd hardly change.
// If L is longer than a quarter of the rank delay, so short turns would conflict, and turns stay as they are.
type Herd struct {
	Window time.Duration
	Late   time.Duration // longest L of the lost races
	Lost   uint8         // races in a row, at most herdLosses
}

const (
	// herdGain is the factor for the window after a lost race.
	herdGain = 8
	// herdLosses is the number of lost races in a row after which a candidate waits.
	herdLosses = 2
)

// maxWindow limits the window: a nominee that did not acquire the lock is replaced after a RetryPeriod.
func (c Config) maxWindow() time.Duration { return c.Retry / 4 }

// turn returns how long this candidate waits before a write that other candidates may send too. It is random for each
// candidate and version of the lock.
func (c Config) turn(s *State) time.Duration {
	h := s.Effort.Herd
	if h.Lost < herdLosses || h.Window == 0 || s.Snap.Preferred == c.Self {
		return 0
	}
	random := fnv.New64a()
	fmt.Fprint(random, c.Self, " ", s.Snap.Version)
	turn := time.Duration(random.Sum64() % uint64(h.Window))
	if limit := max(c.RankDelay*3/4, 4*h.Late); c.Ranked && c.isHighestRank(s) && limit <= c.RankDelay {
		turn = turn * limit / (turn + limit + 1)
	}
	return turn
}

// observeHerd adapts the window if v shows the write of another candidate.
func (c Config) observeHerd(s *State, v sighting) Herd {
	h := s.Effort.Herd
	event := Never
	switch r := v.Annotations.Request; {
	case s.Known == Unread:
	case v.Held() && v.Record.Holder != c.Self && !v.Nominated() && !record.SameHolder(s.Snap, v.Snapshot):
		event, _ = c.claimTime(s, v.at)
	case v.Addressed() && r.Identity != c.Self && r.Renewed(s.Snap.Annotations.Request) && c.requestFrom(s) <= v.at:
		event = s.reasonToRequest(v.at)
	}
	waited := min(event.Until(v.at), c.RankDelay) // a slow API server is no reason to shorten a window faster
	switch {
	case event > v.at:
	case s.races():
		h.Window = min(max(herdGain*h.Window, waited), c.maxWindow())
		if s.Flight.Op != NoOp {
			h.Late = max(h.Late, s.Flight.Sent.Mono.Until(v.at))
		}
		h.Lost = min(h.Lost+1, herdLosses)
	default:
		h.Window = max(0, h.Window-waited/2)
	}
	return h
}

// races reports whether an own write for which other candidates compete is in flight, or met another version that was not
// seen yet.
func (s *State) races() bool {
	e := s.Effort
	return s.Flight.Op == Acquire || s.Flight.Op == SendRequest || e.Writes.met(s.Snap) || e.Requests.met(s.Snap)
}

// met reports whether the last write was guarded by this version and conflicted.
func (e Effort) met(snap Snapshot) bool { return e.Conflicts > 0 && e.Base == snap.Version }

// won processes a stored write.
func (h Herd) won(op Op) Herd {
	if op == Acquire || op == SendRequest {
		h.Lost = 0
		h.Late = 0
		h.Window /= 2
	}
	return h
}
