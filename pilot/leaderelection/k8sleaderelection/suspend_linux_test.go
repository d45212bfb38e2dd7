package k8sleaderelection

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// sleeper plays the kernel: CLOCK_BOOTTIME, which a suspend moves, and its timers, of which
// those whose time has come meanwhile ring when the machine is awake again.
type sleeper struct {
	mu    sync.Mutex
	slept time.Duration
	due   map[*alarm]int64
}

func (s *sleeper) boottime() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// now is for who holds mu.
func (s *sleeper) now() int64 { return readBoottime() + int64(s.slept) }

func (s *sleeper) set(a *alarm, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at <= s.now() {
		delete(s.due, a)
		go a.ring()
		return
	}
	s.due[a] = at
}

func (s *sleeper) unset(a *alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, a)
}

// sleep is a suspend, and what follows it.
func (s *sleeper) sleep(d time.Duration) {
	s.mu.Lock()
	s.slept += d
	now := s.now()
	var due []*alarm
	for a, at := range s.due {
		if at <= now {
			due = append(due, a)
			delete(s.due, a)
		}
	}
	s.mu.Unlock()
	for _, a := range due {
		a.ring()
	}
}

// Nobody asks for anything: the timer alone tells the run functions of a suspend.
func TestRunFunctionsAreToldOfASuspend(t *testing.T) {
	const suspends = 20
	var longest time.Duration
	for range suspends {
		s := &sleeper{due: map[*alarm]int64{}}
		clock := NewClock(s.boottime)
		clock.alarms = s
		began, told := make(chan struct{}), make(chan time.Time)
		le, err := NewLeaderElector(LeaderElectionConfig{
			Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker, Name: "test", Clock: clock, ReleaseOnCancel: true,
			// Nothing else is due while the test lasts.
			LeaseDuration: 4 * time.Hour, RenewDeadline: 2 * time.Hour, RetryPeriod: time.Hour,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			RunFunctions: []func(context.Context) error{func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				told <- time.Now()
				return nil
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); le.Run(ctx) }()
		<-began
		awake := time.Now()
		s.sleep(3 * time.Hour)
		select {
		case at := <-told:
			longest = max(longest, at.Sub(awake))
		case <-time.After(time.Minute):
			t.Fatal("not told within a minute")
		}
		cancel()
		<-done
	}
	t.Logf("figure: %d suspends past the end of the cover: run functions were told %v after the process ran again, at most", suspends, longest.Round(time.Microsecond))
}

// The machine may sleep between the reading that the core went by and the setting of the timer.
func TestASleepBeforeTheTimerIsSetCounts(t *testing.T) {
	s := &sleeper{due: map[*alarm]int64{}}
	clock := NewClock(s.boottime)
	clock.alarms = s
	l := &loop{le: &LeaderElector{clock: clock}}
	rang := make(chan struct{})
	l.bootAlarm.ring = func() { close(rang) }
	now := clock.read()
	l.state.Validity = now.Plus(time.Hour)
	s.sleep(3 * time.Hour)
	l.setBootAlarm(now, now.Mono.After(time.Hour))
	select {
	case <-rang:
	case <-time.After(time.Minute):
		t.Fatal("the timer has not rung within a minute of its time")
	}
}

// after is in so much time, by CLOCK_BOOTTIME.
func after(wait time.Duration) int64 { return readBoottime() + int64(wait) }

// The process has one timer, whoever sets it, and none when nobody does.
func TestTimerOfTheProcess(t *testing.T) {
	files := openTimers(t)
	rang := make(chan int, 10)
	var all []*alarm
	for i, wait := range []time.Duration{40 * time.Millisecond, time.Hour, 10 * time.Millisecond, time.Hour} {
		a := &alarm{ring: func() { rang <- i }}
		all = append(all, a)
		timers.set(a, after(wait))
	}
	if n := openTimers(t) - files; n != 1 {
		t.Errorf("%d files for four alarms", n)
	}
	timers.set(all[3], after(70*time.Millisecond))
	for _, want := range []int{2, 0, 3} {
		if got := <-rang; got != want {
			t.Errorf("alarm %d rang, not %d", got, want)
		}
	}
	timers.unset(all[1])
	if n := openTimers(t) - files; n != 0 {
		t.Errorf("%d files are left", n)
	}
	// Set again, and one that is past.
	timers.set(all[0], after(-time.Second))
	if got := <-rang; got != 0 {
		t.Errorf("alarm %d rang", got)
	}
	for _, a := range all {
		timers.unset(a)
	}
	if n := openTimers(t) - files; n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// openTimers counts the process's timers.
func openTimers(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "timerfd") {
			n++
		}
	}
	return n
}

// A leader sets the timer; a follower, and one that runs no more, does not.
func TestOnlyALeaderSetsTheTimer(t *testing.T) {
	s := &sleeper{due: map[*alarm]int64{}}
	clock := NewClock(s.boottime)
	clock.alarms = s
	l := &loop{le: &LeaderElector{clock: clock}}
	count := func(wake core.Instant) int {
		l.setBootAlarm(clock.read(), wake)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.due)
	}
	soon := clock.mono().After(time.Minute)
	if n := count(soon); n != 0 {
		t.Errorf("a follower has set %d", n)
	}
	l.state.Validity = clock.read().Plus(time.Hour)
	if n := count(soon); n != 1 {
		t.Errorf("a leader has set %d", n)
	}
	if n := count(core.Never); n != 0 {
		t.Errorf("one that has nothing to wait for has set %d", n)
	}
}
