package k8sleaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A second run beside the first is refused, and one after it is another.
func TestOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := prepare(t, locktest.NewStore(locktest.Lease), "a")
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 8)
		go func() { ends <- a.Campaign(ctx) }()
		synctest.Wait()
		if !a.IsLeader() || len(ends) != 0 {
			t.Fatalf("leader %v, ended %d times", a.IsLeader(), len(ends))
		}
		if err := a.Campaign(ctx); !errors.Is(err, le.ErrRunning) {
			t.Errorf("a second one beside it: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := <-ends; err != nil || a.IsLeader() {
			t.Errorf("ended with %v, leader %v", err, a.IsLeader())
		}
		again, stop := context.WithCancel(t.Context())
		go func() { ends <- a.Campaign(again) }()
		synctest.Wait()
		if !a.IsLeader() {
			t.Error("it does not lead again")
		}
		stop()
		<-ends
	})
}

// panicking is a comparison that panics once it has been asked so often.
func panicking(after int) func(string) bool {
	asked := 0
	return func(string) bool {
		if asked++; asked > after {
			panic("no comparison")
		}
		return false
	}
}

// lastEnd is a gate that knows what it was told last.
type lastEnd struct{ end le.Validity }

func (g *lastEnd) Set(_ le.Term, end le.Validity) { g.end = end }
func (*lastEnd) Drain()                           {}

// Whoever recovers from a callback's panic has no leader left: its functions are told to stop, and its gate is shut.
func TestAPanicEndsTheTerm(t *testing.T) {
	for name, gate := range map[string]*lastEnd{"a gate": {}, "none": nil} {
		synctest.Test(t, func(t *testing.T) {
			a := prepare(t, locktest.NewStore(locktest.Lease), "a", func(c *le.LeaderElectionConfig) {
				if c.KeyComparison = panicking(20); gate != nil {
					c.Gate = gate
				}
			})
			led := false
			recovered := make(chan any)
			go func() {
				defer func() {
					led = gate != nil && gate.end != le.Validity{} || a.IsLeader()
					recovered <- recover()
				}()
				_ = a.Campaign(t.Context())
			}()
			for a.terms() == 0 {
				pass(time.Second)
			}
			if p := <-recovered; p != "no comparison" || led {
				t.Errorf("%s: it has ended with %v, and leads: %v", name, p, led)
			}
			if synctest.Wait(); a.isLive() {
				t.Errorf("%s: its function runs on", name)
			}
			if err := a.Campaign(t.Context()); !errors.Is(err, le.ErrRunning) {
				t.Errorf("%s: another run: %v", name, err)
			}
		})
	}
}

// Electors that share a Shared all lead, and renew on time, though it lets one call
// pass at once. Calls of one that hang are given up at their deadlines, and no later.
func TestElectorsShareCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &k8sresourcelock.Shared{CallsAtOnce: 1}
		share := func(c *le.LeaderElectionConfig) { c.Shared = d }
		var all []*candidate
		for i := range 5 {
			all = append(all, enter(t, locktest.NewStore(locktest.Lease), fmt.Sprint("p", i), share))
		}
		leading := func() (n int) {
			synctest.Wait()
			for _, c := range all {
				if c.IsLeader() {
					n++
				}
			}
			return n
		}
		<-time.After(5 * lease)
		if n := leading(); n != 5 {
			t.Fatalf("%d lead", n)
		}
		all[0].cut(true)
		<-time.After(lease)
		if all[0].IsLeader() {
			t.Error("one that is cut off leads on")
		}
		all[0].cut(false)
		<-time.After(2 * lease)
		if n := leading(); n != 5 {
			t.Errorf("%d lead afterwards", n)
		}
	})
}
