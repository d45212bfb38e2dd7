package bootstrap

import (
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// stuckControllerEndsTheProcess: after ShutdownTimeout, by Exit.
func stuckControllerEndsTheProcess(t *testing.T, e *environment) {
	config := e.config(t, "a")
	exited := make(chan time.Time, 1)
	config.ShutdownTimeout, config.Exit = time.Second, func() { exited <- time.Now() }
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	r.leads(t)
	stopped := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- r.end() }()
	select {
	case at := <-exited:
		if took := at.Sub(stopped); took < config.ShutdownTimeout || took >= defaultShutdownTimeout {
			t.Errorf("Exit was called after %v", took)
		}
	case <-time.After(patience):
		t.Error("Exit was not called")
	}
	var err error
	select {
	case err = <-ended: // it does not wait for what is stuck
	case <-time.After(patience):
	}
	close(c.held)
	if !errors.Is(err, k8sleaderelection.ErrStuckDrain) || strings.Contains(err.Error(), "\n") {
		t.Errorf("it ended with %v", err)
	}
	if !c.closed {
		t.Error("the controller was not closed")
	}
}
