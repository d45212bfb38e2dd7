package derive

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// rankDelay covers some watch latencies and one write.
const rankDelay = 25 * time.Millisecond

// patience is how much later the watcher of a leader may be than the watcher of a challenger.
const patience = 2 * time.Second

// maxStopLimit is half of the 30 s after which Kubernetes kills a Pod that is stopping. The rest is for the release.
const maxStopLimit = 15 * time.Second

// Timing returns t with the derived durations. Clock rates differ by at most drift.
func Timing(t core.Timing, drift float64) core.Timing {
	if t.DrainLimit == 0 {
		t.DrainLimit = DrainRoom(t, drift)
	}
	if t.StopLimit == 0 {
		t.StopLimit = min(2*t.Lease, maxStopLimit)
	}
	t.CallTimeout = (t.Validity - t.Retry) / 2 // a leader with a hanging renewal can retry once
	t.Patience = min(patience, t.Retry/2)
	t.RankDelay = min(rankDelay, t.Retry/4)
	return t
}

// SafeLease returns the longest time by a slow clock within the lease by a fast clock.
func SafeLease(t core.Timing, drift float64) time.Duration {
	return time.Duration(float64(t.Lease) * (1 - drift) / (1 + drift))
}

// DrainRoom returns the longest DrainLimit that one-at-a-time allows: (validity + limit)/(1−δ) ≤
// lease/(1+δ).
func DrainRoom(t core.Timing, drift float64) time.Duration {
	return (SafeLease(t, drift) - t.Validity).Truncate(time.Millisecond)
}
