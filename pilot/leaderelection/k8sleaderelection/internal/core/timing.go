package core

import "time"

// Timing is every duration that decisions are made by. The first are a user's; what is left at
// zero of the rest follows from them: see Derived.
type Timing struct {
	Lease     time.Duration // written into the record, in whole seconds
	Cover     time.Duration // how long an acknowledged write lets us act
	Retry     time.Duration // between a leader's writes, and between polls
	PeerGrace time.Duration // added to the lease of a holder without a valid marker
	SyncWait  time.Duration // how long, from its first step, a ranked candidate waits for the default before it takes a lock

	DrainLimit time.Duration // after the end of cover
	StopLimit  time.Duration // after a stop, while the lease is kept

	CallTimeout time.Duration // the longest that one call may take
	Patience    time.Duration // that a leader has with its own watcher before it refuses a request
	RankDelay   time.Duration // by which lower ranks let a higher one go first
}

// rankDelay is some watch latencies and one write on a busy API server.
const rankDelay = 25 * time.Millisecond

// patience is how far a watcher may be behind that of a challenger, which has seen the change already.
const patience = 2 * time.Second

// Derived is t with what follows from lease, cover and retry, where clock rates are off by
// that share at most.
func (t Timing) Derived(drift float64) Timing {
	if t.DrainLimit == 0 {
		t.DrainLimit = t.DrainRoom(drift)
	}
	if t.StopLimit == 0 {
		t.StopLimit = 2 * t.Lease
	}
	t.CallTimeout = (t.Cover - t.Retry) / 2 // so that a leader whose renewal hangs has the time for another try
	t.Patience = min(patience, t.Retry/2)
	t.RankDelay = min(rankDelay, t.Retry/4)
	return t
}

// SafeLease is for how long a slow clock may count before a fast one has counted the lease.
func (t Timing) SafeLease(drift float64) time.Duration {
	return time.Duration(float64(t.Lease) * (1 - drift) / (1 + drift))
}

// DrainRoom is the longest DrainLimit for which one-at-a-time holds:
// (cover + limit)/(1−δ) ≤ lease/(1+δ).
func (t Timing) DrainRoom(drift float64) time.Duration {
	return (t.SafeLease(drift) - t.Cover).Truncate(time.Millisecond)
}
