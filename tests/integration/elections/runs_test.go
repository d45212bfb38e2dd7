package elections

import (
	"context"
	"errors"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// RunContext returns once: of an election that ran, of one that runs already, and of one that never came to.
func TestHowARunEnds(t *testing.T) {
	s := newStage(t, leaderelection.LeaseLock)
	a := s.replica("a", "stable")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.RunContext(ctx) }()
	eventually(t, "a leads", a.Live)
	if err := a.RunContext(ctx); !errors.Is(err, leaderelection.ErrRunning) {
		t.Errorf("a second one beside it: %v", err)
	}
	b := s.enter("b", "stable")
	eventually(t, "b follows", b.follows("a"))
	cancel()
	if err := <-ended; err != nil || a.Live() {
		t.Errorf("ended with %v; its function runs: %v", err, a.Live())
	}
	eventually(t, "b leads", b.Live)
	lives.Apart(t, a, b)
	if err := a.RunContext(ctx); err != nil {
		t.Errorf("begun after its context had ended: %v", err)
	}
	cold := s.replica("c", "stable")
	wrong := errors.New("no cache")
	cold.Warm(func(context.Context) error { return wrong })
	if err := cold.RunContext(t.Context()); !errors.Is(err, wrong) {
		t.Errorf("with a warm function that fails: %v", err)
	}
}
