package k8sleaderelection

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// readBoottime reads CLOCK_BOOTTIME. Unlike the monotonic clock, it also counts while the machine sleeps.
func readBoottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// timers is the only timerfd of the process. It has a file and a goroutine while an elector leads.
var timers timerfd

func processAlarms() bootAlarms { return &timers }

// timerfd rings alarms by CLOCK_BOOTTIME.
type timerfd struct {
	mu     sync.Mutex
	alarms []*alarm // in no order
	file   *os.File
	ended  chan struct{} // closed when wait has returned
}

// set makes a.ring be called at the given time, or immediately if it has passed. a.ring must return quickly. If the
// system has no such timer, set does nothing, and timers of the runtime fire later.
func (t *timerfd) set(a *alarm, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil && !t.open() {
		return
	}
	a.at = core.Instant(at)
	if !slices.Contains(t.alarms, a) {
		t.alarms = append(t.alarms, a)
	}
	t.arm()
}

// unset removes an alarm. With the last alarm, it waits until the goroutine has ended.
func (t *timerfd) unset(a *alarm) {
	t.mu.Lock()
	// The timer may still fire at its time. due sets it again.
	t.alarms = slices.DeleteFunc(t.alarms, func(other *alarm) bool { return other == a })
	var ended chan struct{}
	if len(t.alarms) == 0 && t.file != nil {
		t.file.Close() // which ends the read
		ended = t.ended
		t.file = nil
	}
	t.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

func (t *timerfd) open() bool {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return false
	}
	t.file = os.NewFile(uintptr(fd), "timerfd") // the runtime polls it like a socket, without a thread
	t.ended = make(chan struct{})
	go t.wait(t.file, t.ended)
	return true
}

// arm sets the timer to the earliest alarm. It requires mu and at least one alarm.
func (t *timerfd) arm() {
	// Zero would stop the timer. A time in the past fires immediately.
	earliest := slices.MinFunc(t.alarms, func(a, b *alarm) int { return cmp.Compare(a.at, b.at) })
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(earliest.at)))}
	conn, err := t.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &at, nil) })
}

func (t *timerfd) wait(file *os.File, ended chan struct{}) {
	defer close(ended)
	expirations := make([]byte, 8)
	for {
		if _, err := file.Read(expirations); err != nil {
			return
		}
		for _, a := range t.due() {
			a.ring()
		}
	}
}

// due removes and returns the alarms that are due.
func (t *timerfd) due() (due []*alarm) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := core.Instant(readBoottime())
	t.alarms = slices.DeleteFunc(t.alarms, func(a *alarm) bool {
		if a.at > now {
			return false
		}
		due = append(due, a)
		return true
	})
	if len(t.alarms) > 0 {
		t.arm()
	}
	return due
}
