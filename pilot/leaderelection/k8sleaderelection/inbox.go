package k8sleaderelection

import "sync"

// signal is word for the loop of which once is enough, however often it was given. The
// lower comes first.
type signal uint8

const (
	stopping  signal = 1 << iota // Run's context has ended
	poked                        // the default revision or the comparison may have changed
	stepsDown                    // StepDown
	told                         // the subscription has News
	absence                      // the coordinator is known to be gone, or no longer
	ticked                       // the timer's
)

// inbox holds what a loop has yet to take in. At most one goroutine at a time takes it
// in, and it exists only while there is something: a process may have a thousand
// electors that wait, and what taking in needs is some 30 KiB of stack.
type inbox struct {
	mu      sync.Mutex
	signals signal
	queue   []*event
	taking  bool // a goroutine takes in; it stays set once the loop has ended
}

// give leaves word with the loop. It does not block.
func (l *loop) give(s signal) {
	if l.leave(s, nil) {
		go l.takeOver()
	}
}

// post hands the loop an event. It does not block; events are taken in in order.
func (l *loop) post(ev *event) {
	if l.leave(0, ev) {
		go l.takeOver()
	}
}

// tick is the alarm's. Its goroutine has nothing else to do than to take in.
func (l *loop) tick() {
	if l.leave(ticked, nil) {
		l.takeOver()
	}
}

// reply is post for a call that has ended, whose goroutine has nothing else to do either.
func (l *loop) reply(ev *event) {
	if l.leave(0, ev) {
		l.takeOver()
	}
}

// leave puts into the inbox what is to be taken in, and reports whether the caller has to
// see to that, with takeOver.
func (l *loop) leave(s signal, ev *event) bool {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.signals |= s
	if ev != nil {
		l.inbox.queue = append(l.inbox.queue, ev)
	}
	if l.inbox.taking {
		return false
	}
	l.inbox.taking = true
	l.helpers.Add(1) // of a loop that has not ended: who took in the last of it never stopped taking in
	return true
}

func (l *loop) takeOver() {
	defer l.helpers.Done()
	l.takeIn()
}

// next is what to take in, in a pass of its own each; when there is nothing, whoever
// asked is no longer the one who takes in. Events come first: whoever posts them posts few
// and waits, while signals may be given without end. The tick comes last: what else is
// there may be the acknowledgement, or the end of a drain, whose absence a tick at its time
// would find.
func (l *loop) next() (signal, *event) {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if len(l.inbox.queue) > 0 {
		ev := l.inbox.queue[0]
		l.inbox.queue = l.inbox.queue[1:]
		return 0, ev
	}
	if s := l.inbox.signals & -l.inbox.signals; s != 0 { // the lowest bit
		l.inbox.signals &^= s
		return s, nil
	}
	l.inbox.queue = nil // an idle one keeps no room
	l.inbox.taking = false
	return 0, nil
}

// empty reports whether there is nothing to take in. The caller takes in no longer then.
func (l *loop) empty() bool {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.taking = l.inbox.signals != 0 || len(l.inbox.queue) > 0
	return !l.inbox.taking
}
