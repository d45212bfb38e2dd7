package elections

import (
	"context"
	"errors"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// Begin takes part as RunContext does, without a goroutine that waits, and tells the end
// once: of an election that ran, of one that runs already, and of one that never came to.
func TestBegin(t *testing.T) {
	s := newStage(t, leaderelection.LeaseLock)
	a := s.replica("a", "stable")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	ends := make(chan error, 8)
	ended := func(err error) { ends <- err }
	a.Begin(ctx, ended)
	eventually(t, "a leads", a.live)
	a.Begin(ctx, ended)
	if err := <-ends; !errors.Is(err, leaderelection.ErrRunning) {
		t.Errorf("a second one beside it: %v", err)
	}
	b := s.enter("b", "stable")
	eventually(t, "b follows", b.follows("a"))
	cancel()
	if err := <-ends; err != nil || a.live() {
		t.Errorf("ended with %v; its function runs: %v", err, a.live())
	}
	eventually(t, "b leads", b.live)
	noOverlap(t, a, b)
	a.Begin(ctx, ended)
	if err := <-ends; err != nil || len(ends) != 0 {
		t.Errorf("begun after its context had ended: %v, and %d more", err, len(ends))
	}
	cold := s.replica("c", "stable")
	wrong := errors.New("no cache")
	cold.Warm(func(context.Context) error { return wrong })
	cold.Begin(t.Context(), ended)
	if err := <-ends; !errors.Is(err, wrong) {
		t.Errorf("with a warm function that fails: %v", err)
	}
}
