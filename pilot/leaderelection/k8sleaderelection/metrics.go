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

// Observer hears what an elector does, for metrics. Its methods are called from the
// elector's loop: they must not block.
type Observer interface {
	// Phase: the candidate went from one phase to another, for a reason of one word.
	Phase(name, from, to, reason string)
	// Call: a request for the lock has ended, after took.
	Call(name, verb, role, result string, took time.Duration)
}

var provider struct {
	sync.Mutex
	MetricsProvider
}

// SetProvider sets where electors report to whose Run begins later.
func SetProvider(metricsProvider MetricsProvider) {
	provider.Lock()
	defer provider.Unlock()
	provider.MetricsProvider = metricsProvider
}

// newLeaderMetric asks the provider in force.
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
