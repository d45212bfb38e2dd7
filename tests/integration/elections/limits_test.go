package elections

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// A process does not campaign before it is warm.
func TestWarmComesBeforeTheCampaign(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a := s.replica("a", "stable")
		warming, warm := make(chan struct{}), make(chan struct{})
		a.Warm(func(ctx context.Context) error {
			close(warming)
			<-warm
			return nil
		})
		a.start(t)
		within(t, "the warm function", warming)
		b := s.enter("b", "stable")
		eventually(t, "b leads, which has nothing to warm", b.Live)
		if n := a.wire.total(); n != 0 {
			t.Errorf("a has sent %d requests", n)
		}
		close(warm)
		eventually(t, "a follows", a.follows("b"))
		if err := b.Quit(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a leads", a.Live)
		lives.Apart(t, a, b)
	})
}

// One that cannot be warmed ends with the reasons, and has not touched the lock.
func TestWarmFails(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	a := s.replica("a", "stable")
	broken := errors.New("no such cache")
	a.Warm(func(context.Context) error { return nil })
	a.Warm(func(context.Context) error { return broken })
	err := a.RunContext(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "warming up") || len(a.Spans()) != 0 || a.wire.total() != 0 {
		t.Errorf("got %v, %d lives, %d requests", err, len(a.Spans()), a.wire.total())
	}
}

// A challenger that is not warm is not there: its leader goes on.
func TestChallengerThatIsNotWarm(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "canary")
		a := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		b := s.ranked(t, "b", "canary", brisk)
		warm := make(chan struct{})
		b.Warm(func(context.Context) error { <-warm; return nil })
		b.start(t)
		c.renewals(t, 3)
		c.expect(t, "a 0, leads")
		close(warm)
		eventually(t, "b leads", b.Live)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		lives.Apart(t, a, b)
	})
}

// A function that fails makes its process step down and stand back, so that another
// gets its chance; the lock was released, not left to lapse.
func TestFailingFunctionStepsDownAndStandsBack(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		a := s.enter("a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		b := s.enter("b", "stable", brisk)
		eventually(t, "b follows", b.follows("a"))
		a.fail <- errors.New("no database")
		eventually(t, "b leads", b.Live)
		c.await(t, "b 1, leads alone")
		c.renewals(t, 3) // longer than a stands back
		b.ends = errors.New("no database either")
		b.fail <- b.ends
		eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 && a.Live() })
		c.expect(t, "a 0, leads alone", "nobody 0", "b 1, leads alone", "nobody 1", "a 2, leads alone")
		lives.Apart(t, a, b)
	})
}

// What a function failed with is what RunContext returns, if that ended the last term.
func TestRunReturnsWhyTheLastTermFailed(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	one, two := errors.New("no database"), errors.New("no disk")
	a := s.replica("a", "stable")
	together := make(chan struct{})
	a.AddRunContext(func(ctx context.Context) error { <-together; return one })
	a.AddRunContext(func(ctx context.Context) error { <-together; <-ctx.Done(); return two })
	a.start(t)
	eventually(t, "a leads", a.Live)
	close(together)
	// Not before the elector has heard of it: a stop that comes first ends the term itself.
	eventually(t, "a has stepped down", func() bool { return !a.Live() && !a.IsLeader() })
	err := a.Quit()
	if !errors.Is(err, one) || !errors.Is(err, two) {
		t.Errorf("got %v, want both errors", err)
	}
	a.ends = one
}

// A set of elections that cannot run says what is wrong with each.
func TestSetCollectsTheErrors(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	client := s.replica("a", "stable").client
	set := leaderelection.NewSet()
	set.Add(leaderelection.NewLeaseLeaderElection("", "a", "first", "stable", client))
	set.Add(leaderelection.NewLeaseLeaderElection("", "a", "second", "stable", client))
	err := set.RunContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"first"`) || !strings.Contains(err.Error(), `"second"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// Functions that do not return within their limit after a stop: RunContext says so, and the lock
// is not given away under them, but left to lapse.
func TestStopLimit(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		stuck := make(chan struct{}, 8)
		limited := func(c *leaderelection.Config) {
			c.StopLimit = time.Second
			c.OnStuckDrain = func() { stuck <- struct{}{} }
		}
		c := s.chronicle(t)
		a := s.enter("a", "stable", brisk, limited)
		eventually(t, "a leads", a.Live)
		b := s.enter("b", "stable", brisk)
		eventually(t, "b follows", b.follows("a"))
		a.insist()
		a.ends = k8sleaderelection.ErrStuckDrain
		if err := a.Quit(); !errors.Is(err, k8sleaderelection.ErrStuckDrain) || len(stuck) != 1 {
			t.Errorf("RunContext ended with %v; reported %d times", err, len(stuck))
		}
		c.expect(t, "a 0, leads alone")
		if b.Live() {
			t.Error("b runs although the lock was not given up")
		}
		last := a.wire.lastOwn()
		a.relent()
		eventually(t, "b leads", b.Live)
		b.notBefore(t, last.Add(briskLease), "a's lease had run out")
		c.expect(t, "a 0, leads alone", "b 1, leads alone")
		lives.Apart(t, a, b)
	})
}

// A leader that is cut off has its drain limit after its cover. What stays longer is
// reported; it cannot write any more, and its process does not lead anew before it ends.
func TestDrainLimit(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		stuck := make(chan struct{}, 8)
		a := s.enter("a", "stable", brisk, func(c *leaderelection.Config) {
			c.DrainLimit = 200 * time.Millisecond
			c.OnStuckDrain = func() { stuck <- struct{}{} }
		})
		eventually(t, "a leads", a.Live)
		b := s.enter("b", "stable", brisk)
		eventually(t, "b follows", b.follows("a"))
		a.insist()
		a.wire.setCut(true)
		eventually(t, "it is reported", func() bool { return len(stuck) > 0 })
		if b.Live() {
			t.Error("b leads before a's drain limit was over")
		}
		_, err := a.Client().Kube().CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if !errors.Is(err, fence.ErrNotLeader) {
			t.Errorf("a write of the function that stays: %v", err)
		}
		eventually(t, "b leads", b.Live)
		a.wire.setCut(false)
		if err := b.Quit(); err != nil {
			t.Fatal(err)
		}
		if len(a.Spans()) != 1 || len(stuck) != 1 {
			t.Errorf("a ran %v; reported %d times", a.Spans(), len(stuck))
		}
		a.relent()
		eventually(t, "a leads anew", func() bool { return len(a.Spans()) == 2 && a.Live() })
	})
}
