package k8sleaderelection

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// readBoottime reads CLOCK_BOOTTIME: like the monotonic clock, but it also counts the
// time that the machine was suspended.
func readBoottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// timers is all that a process has of them: one file, and one goroutine that waits on it,
// while an elector leads.
var timers timerfd

func processAlarms() bootAlarms { return &timers }

// timerfd rings alarms by CLOCK_BOOTTIME.
type timerfd struct {
	mu     sync.Mutex
	alarms []*alarm // at by CLOCK_BOOTTIME, in no order
	file   *os.File
	ended  chan struct{} // closed when nobody waits on file any more
}

// set has a.ring called when CLOCK_BOOTTIME is at at, or at once if it has been; it must not
// take long. Where the system has no such timer, nothing is: the others ring, only later.
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

// unset returns when nothing that the last alarm needed is there any more.
func (t *timerfd) unset(a *alarm) {
	t.mu.Lock()
	// The timer may ring for it yet, and due sets it anew.
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
	// The runtime waits on it together with all sockets, and needs no thread for it.
	t.file, t.ended = os.NewFile(uintptr(fd), "timerfd"), make(chan struct{})
	go t.wait(t.file, t.ended)
	return true
}

// arm sets the timer to the earliest alarm. The caller holds mu, and there is one.
func (t *timerfd) arm() {
	// Zero would stop the timer; what is past rings at once.
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

// due takes out the alarms whose time has come.
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
