package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// until returns a write that takes until its context ends.
func until(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestGateDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, _ := newGate()
		quick, cancel := context.WithTimeoutCause(t.Context(), time.Second, errGaveUp)
		defer cancel()
		for name, c := range map[string]struct {
			gate  *fence.Gate
			ctx   context.Context
			write func(context.Context) error
			want  error
		}{
			"closed":          {closed, t.Context(), func(context.Context) error { panic("was called") }, fence.ErrNotLeader},
			"another term":    {openGate(time.Minute), le.ContextWithTerm(t.Context(), le.Term{Token: 6}), until, fence.ErrNotLeader},
			"success":         {openGate(time.Minute), t.Context(), func(context.Context) error { return nil }, nil},
			"own error":       {openGate(time.Minute), t.Context(), func(context.Context) error { return errBroken }, errBroken},
			"caller gives up": {openGate(time.Minute), quick, until, errGaveUp},
			"validity ends":   {openGate(time.Minute), t.Context(), until, fence.ErrOutcomeUnknown},
		} {
			if err := c.gate.Do(c.ctx, c.write); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if byGate, _ := closed.Refused(); byGate != 1 {
			t.Errorf("%d rejected writes were counted", byGate)
		}
	})
}

func TestGateDo_DrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := openGate(time.Minute)
		drained := false
		err := gate.Do(t.Context(), func(context.Context) error {
			go func() {
				gate.Drain()
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
