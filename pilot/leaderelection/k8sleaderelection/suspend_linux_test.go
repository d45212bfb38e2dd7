package k8sleaderelection

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// After a suspend, only the alarm wakes the loop: nothing reads the clock and no other timer is due.
func TestSuspendEndsTerm(t *testing.T) {
	s, clock := newSuspender()
	started := make(chan struct{})
	stopped := make(chan time.Time)
	l := idleLoop(t, locktest.NewStore(locktest.Lease).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
		c.Clock = clock
		c.LeaseDuration = 4 * time.Hour
		c.RenewDeadline = 2 * time.Hour
		c.RetryPeriod = time.Hour
		c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			stopped <- time.Now()
			return nil
		}}
	})
	harness.Background(t, func(ctx context.Context) error { l.le.Run(ctx); return nil })
	<-started
	resumed := time.Now()
	s.suspend(3 * time.Hour)
	select {
	case at := <-stopped:
		t.Logf("figure: the run functions were stopped %v after a suspend", at.Sub(resumed).Round(time.Microsecond))
	case <-time.After(time.Minute):
		t.Fatal("not stopped within a minute")
	}
}

// The machine may suspend between the clock reading and the setting of the alarm.
func TestSetBootAlarm_SuspendBefore(t *testing.T) {
	s, clock := newSuspender()
	l := &loop{le: &LeaderElector{clock: clock}}
	rang := make(chan struct{})
	l.bootAlarm.ring = func() { close(rang) }
	now := clock.read()
	l.state.Validity = now.Plus(time.Hour)
	s.suspend(3 * time.Hour)
	l.setBootAlarm(now, now.Mono.After(time.Hour))
	<-rang
}

func TestSetBootAlarm(t *testing.T) {
	s, clock := newSuspender()
	l := &loop{le: &LeaderElector{clock: clock}}
	soon := clock.mono().After(time.Minute)
	validity := clock.read().Plus(time.Hour)
	for _, c := range []struct {
		name     string
		validity core.Validity
		wake     core.Instant
		want     int
	}{{"follower", core.Validity{}, soon, 0}, {"leader", validity, soon, 1}, {"nothing to wait for", validity, core.Never, 0}} {
		l.state.Validity = c.validity
		if l.setBootAlarm(clock.read(), c.wake); len(s.due) != c.want {
			t.Errorf("%s: %d alarms", c.name, len(s.due))
		}
	}
}

func boottimeIn(d time.Duration) int64 { return readBoottime() + int64(d) }

func openTimers(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	harness.Must(t, err)
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "timerfd") {
			n++
		}
	}
	return n
}

// wants checks the remaining time of the timer of the system.
func (t *timerfd) wants(test *testing.T, want time.Duration) {
	test.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, err := t.file.SyscallConn()
	harness.Must(test, err)
	var timer unix.ItimerSpec
	harness.Must(test, conn.Control(func(fd uintptr) { _ = unix.TimerfdGettime(int(fd), &timer) }))
	if left := time.Duration(timer.Value.Nano()); left > want || left < want-10*time.Minute {
		test.Errorf("the timer fires in %v, want %v", left, want)
	}
}

// All alarms use one timer of the system, set to the earliest of them. It is closed with the last alarm.
func TestTimerfd(t *testing.T) {
	files := openTimers(t)
	var tf timerfd
	rang := make(chan string, 10)
	newAlarm := func(name string) *alarm { return &alarm{ring: func() { rang <- name }} }
	wantRing := func(want string) {
		t.Helper()
		if got := <-rang; got != want {
			t.Errorf("%s rang, want %s", got, want)
		}
	}
	a := newAlarm("a")
	b := newAlarm("b")
	c := newAlarm("c")
	tf.set(a, boottimeIn(2*time.Hour))
	tf.set(b, boottimeIn(3*time.Hour))
	tf.set(c, boottimeIn(4*time.Hour))
	tf.wants(t, 2*time.Hour)
	if n := openTimers(t) - files; n != 1 {
		t.Errorf("%d files for three alarms", n)
	}
	tf.set(b, boottimeIn(time.Hour))
	tf.wants(t, time.Hour)
	tf.set(b, boottimeIn(5*time.Hour))
	tf.wants(t, 2*time.Hour)
	tf.set(b, boottimeIn(10*time.Millisecond))
	wantRing("b")
	tf.wants(t, 2*time.Hour)
	tf.unset(a)
	tf.unset(a)
	// The timer still fires at the time of the removed alarm, and is then set again.
	if due := tf.due(); len(due) != 0 {
		t.Errorf("%d alarms are due", len(due))
	}
	tf.wants(t, 4*time.Hour)
	tf.set(c, boottimeIn(-time.Hour))
	wantRing("c")
	tf.unset(c)
	if n := openTimers(t) - files; n != 0 || len(rang) != 0 {
		t.Errorf("%d files left, %d alarms rang", n, len(rang))
	}
}

// unset of the last alarm waits for an alarm that is ringing.
func TestTimerfdUnset_Ringing(t *testing.T) {
	var tf timerfd
	for range 5 {
		began := make(chan struct{})
		release := make(chan struct{})
		var returned atomic.Bool
		a := &alarm{ring: func() {
			close(began)
			<-release
			returned.Store(true)
		}}
		tf.set(a, boottimeIn(-time.Second))
		<-began
		time.AfterFunc(10*time.Millisecond, func() { close(release) })
		tf.unset(a)
		if !returned.Load() {
			t.Fatal("unset returned while the alarm was ringing")
		}
	}
}
