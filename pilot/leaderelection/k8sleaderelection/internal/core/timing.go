package core

import "time"

// Timing has all durations for decisions. Derived computes the lower fields that are zero.
type Timing struct {
	Lease     time.Duration // in the record, in whole seconds
	Validity  time.Duration // from the send time of an acknowledged write
	Retry     time.Duration // between the writes of a leader, and between polls
	PeerGrace time.Duration // added to the lease of a holder without a valid marker
	SyncWait  time.Duration // from the first step; a ranked candidate waits this long for the default before it acquires a lock

	DrainLimit time.Duration // after the end of validity
	StopLimit  time.Duration // after a stop, while the lease is kept

	Patience  time.Duration // time for the own watcher of a leader before it refuses a request
	RankDelay time.Duration // delay of lower ranks
}

// rankDelay covers some watch latencies and one write.
const rankDelay = 25 * time.Millisecond

// patience is how much later the watcher of a leader may be than the watcher of a challenger.
const patience = 2 * time.Second

// maxStopLimit is half of the 30 s after which Kubernetes kills a Pod that is stopping. The rest is for the release.
const maxStopLimit = 15 * time.Second

// Derived returns t with the durations that follow from the configured ones. Clock rates differ by at most drift.
func (t Timing) Derived(drift float64) Timing {
	if t.DrainLimit == 0 {
		t.DrainLimit = t.DrainRoom(drift)
	}
	if t.StopLimit == 0 {
		t.StopLimit = min(2*t.Lease, maxStopLimit)
	}
	t.Patience = min(patience, t.Retry/2)
	t.RankDelay = min(rankDelay, t.Retry/4)
	return t
}

// SafeLease returns the longest time by a slow clock within the lease by a fast clock.
func (t Timing) SafeLease(drift float64) time.Duration {
	return time.Duration(float64(t.Lease) * (1 - drift) / (1 + drift))
}

// DrainRoom returns the longest DrainLimit that one-at-a-time allows: (validity + limit)/(1−δ) ≤
// lease/(1+δ).
func (t Timing) DrainRoom(drift float64) time.Duration {
	return (t.SafeLease(drift) - t.Validity).Truncate(time.Millisecond)
}
