package derive

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// rankDelay is some watch latencies and one write on a busy API server.
const rankDelay = 25 * time.Millisecond

// patience is what a watcher may be behind that of a challenger, which knows of a change already.
const patience = 2 * time.Second

// Timing is t with what follows from lease, cover and retry, where clock rates are off by
// that share at most.
func Timing(t core.Timing, drift float64) core.Timing {
	if t.DrainLimit == 0 {
		t.DrainLimit = DrainRoom(t, drift)
	}
	if t.StopLimit == 0 {
		t.StopLimit = 2 * t.Lease
	}
	t.CallTimeout = (t.Validity - t.Retry) / 2 // so that a leader whose renewal hangs has the time for another try
	t.Patience = min(patience, t.Retry/2)
	t.RankDelay = min(rankDelay, t.Retry/4)
	return t
}

// SafeLease is for how long a slow clock may count before a fast one has counted the lease.
func SafeLease(t core.Timing, drift float64) time.Duration {
	return time.Duration(float64(t.Lease) * (1 - drift) / (1 + drift))
}

// DrainRoom is the longest DrainLimit for which one-at-a-time holds:
// (cover + limit)/(1−δ) ≤ lease/(1+δ).
func DrainRoom(t core.Timing, drift float64) time.Duration {
	return (SafeLease(t, drift) - t.Validity).Truncate(time.Millisecond)
}
