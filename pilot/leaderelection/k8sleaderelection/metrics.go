package k8sleaderelection

import (
	"sync"
	"time"
)

// MetricsProvider makes the metrics that electors report to.
type MetricsProvider interface {
	NewLeaderMetric() SwitchMetric
}

// SwitchMetric is on while this process leads the election of that name.
type SwitchMetric interface {
	On(name string)
	Off(name string)
}

// SlowpathMetric is an optional extension of SwitchMetric: it counts writes that
// needed a read first, because the elector's picture of the lock was behind.
type SlowpathMetric interface {
	SlowpathExercised(name string)
}

// Observer is called with what an elector does, for metrics. Its methods are called from the
// elector's loop: they must not block.
type Observer interface {
	// Phase: the candidate went from one phase to another, for a reason of one word.
	Phase(name, from, to, reason string)
	// Call: a request for the lock has ended, after took. verb is its purpose: read, acquire,
	// renew, release, ask or hand-over. role is the candidate's phase. result is ok, conflict
	// (the lock had changed, nothing was written), unknown (no usable answer: a write may have
	// been stored) or refused (the API server did not do it).
	Call(name, verb, role, result string, took time.Duration)
}

// TermObserver is an optional extension of Observer.
type TermObserver interface {
	Observer
	// Term: a term of this process began or ended. A term begins when run functions may run.
	// The reason of a begin is the right by which the lock was taken, such as lock-free.
	Term(name string, began bool, reason string)
	// ObserveDuration: the interval is over, after took.
	ObserveDuration(name string, what Interval, took time.Duration)
	// StatusChanged is for programs that show elections: it is called whenever Status shows something else than before. That time
	// has passed is no change, that the leader has renewed is one.
	StatusChanged(name string)
}

// Interval names what a TermObserver is given the duration of.
type Interval string

const (
	// Drain: from the end of the run functions' contexts until all had returned and every
	// admitted write was answered.
	Drain Interval = "drain"
	// Handover: from sending the first request for this lock until this process,
	// nominated, leads. The drain of the former leader is part of it.
	Handover Interval = "handover"
	// HandoverGiven: the same as the leader sees it: from accepting a request until the challenger is written in.
	HandoverGiven Interval = "handover-given"
	// Leaderless: how long nobody acted, as this one process sees it; every candidate
	// of the election reports it. It begins when a record is seen that names nobody, or
	// somebody nominated who has not written itself yet, or when there is no record or
	// none that can be read, or when the recorded lease runs out by this process's
	// clock. It ends when a record is seen whose holder acts.
	//
	// It is too short where the record does not show it: a leader that died stops acting
	// then, and not at the end of its lease; and another candidate without a marker counts
	// as acting, because a peer, which has none, cannot be told from one of ours that
	// settles. It is too long by the latency of the watch. The time before the process
	// first read the lock is not in it, and one that outlasts the process is not reported.
	Leaderless Interval = "leaderless"
)

var provider struct {
	sync.Mutex
	MetricsProvider
}

// SetProvider sets the metrics provider of electors whose Run or Campaign begins after this
// call; nil: no metrics. Unlike client-go's it may be called again.
func SetProvider(metricsProvider MetricsProvider) {
	provider.Lock()
	defer provider.Unlock()
	provider.MetricsProvider = metricsProvider
}

// newLeaderMetric asks the present provider.
func newLeaderMetric() SwitchMetric {
	provider.Lock()
	defer provider.Unlock()
	if provider.MetricsProvider == nil {
		return noMetric{}
	}
	return provider.NewLeaderMetric()
}

type noMetric struct{}

func (noMetric) On(string)  {}
func (noMetric) Off(string) {}
