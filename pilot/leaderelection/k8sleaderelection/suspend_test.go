package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// The machine sleeps for longer than the cover. Timers of the runtime stood still, so that
// the loop would see to it at its next renewal; whoever reads the clocks first tells it.
func TestTheFirstReadingAfterASuspendTellsTheRunFunctions(t *testing.T) {
	for name, read := range map[string]func(*candidate, *le.Clock){
		"a gate's check":    func(_ *candidate, clock *le.Clock) { clock.Now() },
		"asked who it is":   func(c *candidate, _ *le.Clock) { c.IsLeader() },
		"asked how it does": func(c *candidate, _ *le.Clock) { c.Status() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				epoch, slept := time.Now(), time.Duration(0)
				clock := le.NewClock(func() int64 { return int64(time.Since(epoch) + slept) })
				c := enter(t, locktest.NewStore(locktest.Lease), "a", func(config *le.LeaderElectionConfig) { config.Clock = clock })
				time.Sleep(time.Second)
				synctest.Wait()
				if !c.isLive() {
					t.Fatal("it does not lead")
				}
				slept = 20 * time.Second
				resumed := time.Now()
				read(c, clock)
				synctest.Wait()
				if c.firstStop().IsZero() {
					time.Sleep(retry)
					synctest.Wait()
				}
				if late := c.firstStop().Sub(resumed); late != 0 {
					t.Errorf("told %v after the process ran again", late)
				}
			})
		})
	}
}

// Readings that differ by nothing but the time that passes wake nobody.
func TestReadingsWakeNobodyWithoutASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := bubbleClock()
		c := enter(t, locktest.NewStore(locktest.Lease), "a", func(config *le.LeaderElectionConfig) { config.Clock = clock })
		time.Sleep(time.Second)
		for range 1000 {
			time.Sleep(time.Millisecond)
			c.IsLeader()
		}
		if !c.firstStop().IsZero() {
			t.Error("it lost its term")
		}
	})
}

// firstStop is when its run function was told for the first time; zero: not yet.
func (c *candidate) firstStop() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stopped) == 0 {
		return time.Time{}
	}
	return c.stopped[0]
}
