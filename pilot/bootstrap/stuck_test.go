package bootstrap

import (
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// stuckControllerIsNotWaitedFor: the server ends after ShutdownTimeout, whatever its controllers do.
func stuckControllerIsNotWaitedFor(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.ShutdownTimeout = time.Second
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	r.leads(t)
	stopped := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- r.end() }()
	var err error
	select {
	case err = <-ended: // it does not wait for what is stuck
		if took := time.Since(stopped); took < config.ShutdownTimeout || took >= defaultShutdownTimeout {
			t.Errorf("it ended after %v", took)
		}
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

// exitIsTheElections: each election has it from the server. The end of a process is tried with one, in cmd/pilot.
func exitIsTheElections(t *testing.T, e *environment) {
	config := e.config(t, "a")
	for _, exits := range []bool{true, false} {
		config.ExitOnStuckDrain = exits
		s, err := newServer(config, newController().rows())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.electionConfig(election{id: "an-election"}).ExitOnStuckDrain; got != exits {
			t.Errorf("ExitOnStuckDrain %v makes %v of an election", exits, got)
		}
	}
}
