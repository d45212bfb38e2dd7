package k8sleaderelection

import (
	"sync"
	"time"
)

// MetricsProvider creates the metrics of electors. client-go has the same interface.
type MetricsProvider interface {
	// NewLeaderMetric returns a metric. NewLeaderElector calls it once.
	NewLeaderMetric() SwitchMetric
}

// SwitchMetric is on while this process leads the election with that name.
type SwitchMetric interface {
	// On is called at the begin of a term.
	On(name string)
	// Off is called at the end of a term, and by NewLeaderElector so that the metric of a follower exists.
	Off(name string)
}

// LeaderMetric is the name of SwitchMetric in client-go.
type LeaderMetric = SwitchMetric

// SlowpathMetric is an optional extension of SwitchMetric.
type SlowpathMetric interface {
	// SlowpathExercised is called after a renewal that succeeded although the one before had failed.
	SlowpathExercised(name string)
}

// Observer receives what an elector does, for metrics. See LeaderElectionConfig.Logger for how it is called.
type Observer interface {
	// Phase is called on each change of the phase, with a word for the reason.
	Phase(name, from, to, reason string)
	// Call is called at the end of a request for the lock. verb is its purpose: read, acquire, renew, release, request
	// or hand-over. role is the phase. result is ok, conflict (the lock had changed, nothing was written), refused (the
	// API server rejected it) or unknown (no usable reply; a write may have been stored).
	Call(name, verb, role, result string, took time.Duration)
	// Term is called at the begin and the end of each term. The reason of a begin is why the lock was acquired, for
	// example lock-free.
	Term(name string, began bool, reason string)
	// ObserveDuration is called at the end of an interval.
	ObserveDuration(name string, what Interval, took time.Duration)
	// StatusChanged is called when Status returns another value than before, apart from the passing of time. A renewal
	// of the leader is a change.
	StatusChanged(name string)
}

// Interval is the name of a measured interval.
type Interval string

const (
	// Drain is the time from the end of the contexts of the run functions until all functions have returned and every
	// admitted write was answered.
	Drain Interval = "drain"
	// Handover is the time from the first request of this process until it leads as the nominee. It includes the drain of
	// the previous leader.
	Handover Interval = "handover"
	// HandoverGiven is the time from the acceptance of a request by this leader until the challenger was written as holder.
	HandoverGiven Interval = "handover-given"
	// Leaderless is the time without an acting candidate, as seen by this process. It begins when a lease expires, or
	// when a record has no holder or only a nominee, is unreadable or was deleted. It ends when a record shows a holder
	// that acts. Each candidate reports it.
	//
	// It is too short if a leader died, because the leader counts until its lease expires. It is also too short if a
	// holder without a marker settles, because it looks like istiod. It includes the latency of the watch. It does not
	// include the time before the first read.
	Leaderless Interval = "leaderless"
	// WitnessRelease is the time from the end of the process of the former leader until its witness released the lock. The
	// candidate that acquires the lock reports it, so each release is reported once.
	WitnessRelease Interval = "witness-release"
)

var provider struct {
	sync.Mutex
	MetricsProvider
}

// SetProvider sets the metrics provider of electors that are created later. If nil, they have no metrics. Unlike in
// client-go, it may be called again.
func SetProvider(metricsProvider MetricsProvider) {
	provider.Lock()
	defer provider.Unlock()
	provider.MetricsProvider = metricsProvider
}

// lazyMetric returns a function that creates the metric with its first call. Calls must not be concurrent. It is no sync.Once, which
// panics if the provider calls runtime.Goexit.
func lazyMetric() func() SwitchMetric {
	var metric SwitchMetric
	return func() SwitchMetric {
		if metric == nil {
			metric = newLeaderMetric()
		}
		return metric
	}
}

func newLeaderMetric() SwitchMetric {
	provider.Lock()
	p := provider.MetricsProvider
	provider.Unlock() // before code of the caller
	if p == nil {
		return noMetric{}
	}
	return p.NewLeaderMetric()
}

type noMetric struct{}

func (noMetric) On(string)  {}
func (noMetric) Off(string) {}
