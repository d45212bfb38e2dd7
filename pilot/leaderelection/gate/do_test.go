package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// until returns a write that takes until its context ends.
func until(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestGateDo(t *testing.T) {
	for name, c := range map[string]struct {
		token uint64 // of the caller's term; 0: any
		write func(context.Context) error
		want  error
	}{
		"another term":    {6, until, gate.ErrNotLeader},
		"success":         {0, func(context.Context) error { return nil }, nil},
		"own error":       {0, func(context.Context) error { return errBroken }, errBroken},
		"caller gives up": {7, until, errGaveUp},
		"validity ends":   {0, until, gate.ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if c.token > 0 {
				quick, cancel := context.WithTimeoutCause(le.ContextWithTerm(ctx, le.Term{Token: c.token}), time.Second, errGaveUp)
				defer cancel()
				ctx = quick
			}
			if err := openGate(time.Minute).Do(ctx, c.write); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
	closed, _ := newGate()
	if err := closed.Do(t.Context(), func(context.Context) error { panic("was called") }); !errors.Is(err, gate.ErrNotLeader) {
		t.Errorf("closed: %v", err)
	}
	if byGate, _ := closed.Refused(); byGate != 1 {
		t.Errorf("%d rejected writes were counted", byGate)
	}
}

func TestGateDo_DrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(time.Minute)
		drained := false
		err := g.Do(t.Context(), func(context.Context) error {
			go func() {
				g.Drain()
				drained = true
			}()
			synctest.Wait()
			if drained {
				t.Error("Drain returned during a write")
			}
			return nil
		})
		synctest.Wait()
		if err != nil || !drained {
			t.Errorf("error %v, drained %v", err, drained)
		}
	})
}
