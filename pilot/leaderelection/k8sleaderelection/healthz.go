package k8sleaderelection

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// HealthzAdaptor is a health check that fails if run functions continue long after their lease expired. Restart the
// process then.
type HealthzAdaptor struct {
	timeout  time.Duration
	mu       sync.Mutex
	electors map[string]*LeaderElector // by name
}

// NewLeaderHealthzAdaptor returns a check that fails when run functions continue for longer than timeout after the
// lease expired. Without an elector, it succeeds.
func NewLeaderHealthzAdaptor(timeout time.Duration) *HealthzAdaptor {
	return &HealthzAdaptor{timeout: timeout}
}

// Name returns leaderElection, the name of the check.
func (h *HealthzAdaptor) Name() string { return "leaderElection" }

// Check returns the errors of LeaderElector.Check. It ignores the request.
func (h *HealthzAdaptor) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, elector := range h.electors {
		errs = append(errs, elector.Check(h.timeout))
	}
	return errors.Join(errs...)
}

// SetLeaderElection adds an elector to check. It replaces an elector with the same name.
func (h *HealthzAdaptor) SetLeaderElection(le *LeaderElector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.electors == nil {
		h.electors = map[string]*LeaderElector{}
	}
	h.electors[le.config.Name] = le
}

// Check returns an error if run functions are still running although their lease expired more than
// maxTolerableExpiredLease ago.
func (le *LeaderElector) Check(maxTolerableExpiredLease time.Duration) error {
	v := le.view.Load()
	if !v.running {
		return nil
	}
	select {
	case <-v.drained: // they returned after the elector had ended
		return nil
	default:
	}
	late := v.acked.Until(le.clock.Now().Mono) - le.config.LeaseDuration
	if late <= maxTolerableExpiredLease {
		return nil
	}
	return fmt.Errorf("election %s: run functions are still running %v after the lease expired", le.config.Name, late.Round(time.Millisecond))
}
