package elections

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
)

// operator gives orders with the rights of a replica of its own.
func (s *stage) operator(t *testing.T) admin.Operator {
	t.Helper()
	o, err := s.replica("operator", "stable").Operator("alice")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOperatorTransfersPausesAndResumes(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		o := s.operator(t)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		if err := o.Transfer(ctx, "b", "canary", "before the upgrade", time.Hour); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b, whose first write the order has waited for, leads", b.Live)
		b.after(t, a)
		if err := o.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a, which outranks b, leads again", a.Live)
		a.after(t, b)
		if err := o.Pause(ctx, "while we look", time.Hour); err != nil {
			t.Fatal(err)
		}
		s.setDefault(t, "canary")
		eventually(t, "b knows of the new default", func() bool { return b.Status().Default == "canary" })
		c.renewals(t, 2)
		if last := c.steps()[len(c.steps())-1]; !a.Live() || !strings.HasPrefix(last, "a 2, leads") || strings.Contains(last, "asked") {
			t.Errorf("during the pause the lock says %q; a works %v", last, a.Live())
		}
		if err := o.StepDown(ctx, "enough", time.Minute); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b leads", b.Live)
		b.after(t, a)
		if err := o.Resume(ctx); !errors.Is(err, admin.ErrNoHold) {
			t.Errorf("the pause was about a's term, and resuming says %v", err)
		}
		lives.Apart(t, a, b)
	})
}

func TestAnUnfitLeaderHandsOverToOneOfNoRank(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		var unfit atomic.Bool
		s.setDefault(t, "stable")
		a := s.ranked(t, "a", "stable")
		a.Fit(func(context.Context) error {
			if unfit.Load() {
				return errors.New("its cache is cold")
			}
			return nil
		})
		a.start(t)
		eventually(t, "a leads", a.Live)
		b := s.enterRanked(t, "b", "canary")
		eventually(t, "b follows", b.follows("a"))
		unfit.Store(true)
		eventually(t, "b leads", b.Live)
		b.after(t, a)
		unfit.Store(false)
		eventually(t, "a is fit, outranks b and leads again", a.Live)
		a.after(t, b)
		lives.Apart(t, a, b)
	})
}
