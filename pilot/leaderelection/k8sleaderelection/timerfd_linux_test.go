package k8sleaderelection

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// left is for how much longer the system's timer runs; 0: it does not.
func (t *timerfd) left(test *testing.T) (left time.Duration) {
	test.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, err := t.file.SyscallConn()
	if err != nil {
		test.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		var now unix.ItimerSpec
		if err := unix.TimerfdGettime(int(fd), &now); err != nil {
			test.Error(err)
		}
		left = time.Duration(now.Value.Nano())
	})
	if err != nil {
		test.Fatal(err)
	}
	return left
}

// wants that the system's timer runs for as long, less what the test has taken since.
func (t *timerfd) wants(test *testing.T, full time.Duration) {
	test.Helper()
	if left := t.left(test); left > full || left < full-10*time.Minute {
		test.Errorf("the timer runs for %v more, want %v", left, full)
	}
}

// The system's timer goes by the earliest alarm, wherever it stood before.
func TestTheTimerGoesByTheEarliestAlarm(t *testing.T) {
	var tf timerfd
	rang := make(chan string, 10)
	alarmOf := func(name string) *alarm { return &alarm{ring: func() { rang <- name }} }
	a, b, c := alarmOf("a"), alarmOf("b"), alarmOf("c")
	tf.set(a, after(2*time.Hour))
	tf.wants(t, 2*time.Hour)
	tf.set(b, after(3*time.Hour))
	tf.set(c, after(4*time.Hour))
	tf.wants(t, 2*time.Hour)
	tf.set(b, after(time.Hour)) // before the first
	tf.wants(t, time.Hour)
	tf.set(b, after(5*time.Hour)) // behind the last
	tf.wants(t, 2*time.Hour)
	tf.set(b, after(-time.Hour))
	if got := <-rang; got != "b" {
		t.Errorf("%s rang", got)
	}
	tf.wants(t, 2*time.Hour)
	// One that is taken away leaves the others theirs.
	tf.unset(a)
	tf.unset(a)
	tf.set(c, after(-time.Hour))
	if got := <-rang; got != "c" {
		t.Errorf("%s rang", got)
	}
	tf.unset(c)
	if tf.file != nil || len(rang) != 0 {
		t.Errorf("file %v, %d rang", tf.file, len(rang))
	}
}

// What rings for an alarm that was taken away is set anew for the others.
func TestATimerThatRingsForNobodyIsSetAnew(t *testing.T) {
	var tf timerfd
	a, b := &alarm{ring: func() { t.Error("it rang") }}, &alarm{ring: func() { t.Error("it rang") }}
	tf.set(a, after(time.Hour))
	tf.set(b, after(2*time.Hour))
	tf.unset(a)
	if due := tf.due(); len(due) != 0 {
		t.Errorf("%d are due", len(due))
	}
	tf.wants(t, 2*time.Hour)
	tf.unset(b)
}

// Whoever takes the last alarm away does not return before one that rings has done so.
func TestTheLastAlarmIsWaitedFor(t *testing.T) {
	var tf timerfd
	for range 5 {
		began, release := make(chan struct{}), make(chan struct{})
		var over atomic.Bool
		a := &alarm{ring: func() {
			close(began)
			<-release
			over.Store(true)
		}}
		tf.set(a, after(-time.Second))
		<-began
		time.AfterFunc(10*time.Millisecond, func() { close(release) })
		tf.unset(a)
		if !over.Load() {
			t.Fatal("it rings yet")
		}
	}
}

// Where the system has no timer left nothing is set, and nothing is waited for.
func TestWithoutATimerOfTheSystem(t *testing.T) {
	var tf timerfd
	a := &alarm{ring: func() {}}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	tf.set(a, after(time.Hour))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if len(tf.alarms) != 0 || tf.file != nil {
		t.Errorf("%d alarms, file %v", len(tf.alarms), tf.file)
	}
	tf.unset(a)
	tf.set(a, after(time.Hour)) // there is one again
	tf.wants(t, time.Hour)
	tf.unset(a)
}
