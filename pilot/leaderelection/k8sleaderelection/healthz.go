package k8sleaderelection

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// HealthzAdaptor is a health check that fails when an elector's process still acts
// although its lease is long over: then the process had better be restarted.
type HealthzAdaptor struct {
	timeout time.Duration
	mu      sync.Mutex
	elector *LeaderElector
}

// NewLeaderHealthzAdaptor returns a check that tolerates run functions for timeout
// beyond the end of the lease. Without an elector it is healthy.
func NewLeaderHealthzAdaptor(timeout time.Duration) *HealthzAdaptor {
	return &HealthzAdaptor{timeout: timeout}
}

// Name is the check's name in a health endpoint.
func (h *HealthzAdaptor) Name() string { return "leaderElection" }

// Check reports an elector that outstays its lease.
func (h *HealthzAdaptor) Check(*http.Request) error {
	h.mu.Lock()
	elector := h.elector
	h.mu.Unlock()
	if elector == nil {
		return nil
	}
	return elector.Check(h.timeout)
}

// SetLeaderElection makes le what the check is about.
func (h *HealthzAdaptor) SetLeaderElection(le *LeaderElector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elector = le
}

// Check returns an error when run functions are still alive although the last
// acknowledged write of their term is older than the lease by more than
// maxTolerableExpiredLease.
func (le *LeaderElector) Check(maxTolerableExpiredLease time.Duration) error {
	v := le.view.Load()
	if !v.running {
		return nil
	}
	select {
	case <-v.drained: // they did end, after the elector had given up on them
		return nil
	default:
	}
	late := v.acked.Until(le.clock.Now().core().Mono) - le.config.LeaseDuration
	if late <= maxTolerableExpiredLease {
		return nil
	}
	return fmt.Errorf("election %s: run functions are still running %v after the lease expired", le.config.Name, late.Round(time.Millisecond))
}
