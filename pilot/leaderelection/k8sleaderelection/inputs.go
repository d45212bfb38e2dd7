package k8sleaderelection

import "sync"

// signal is a set of inputs to the loop of which one is enough, however often it was raised. The
// lower comes first.
type signal uint8

const (
	stopping   signal = 1 << iota // Run's context has ended
	reevaluate                    // the default revision or the comparison may have changed
	stepsDown                     // StepDown
	watchEvent                    // the subscription has News
	absence                       // the coordinator is known to be gone, or no longer
	ticked                        // a timer's
)

// inputs holds the events and signals that a loop has not processed yet.
type inputs struct {
	events chan *event
	// ended is closed when nobody takes in any more.
	ended chan struct{}
	// signaled has room for one value: that there are signals.
	signaled chan struct{}

	mu      sync.Mutex
	signals signal
}

func newInputs() inputs {
	return inputs{events: make(chan *event), ended: make(chan struct{}), signaled: make(chan struct{}, 1)}
}

// signal raises one. It does not block.
func (i *inputs) signal(s signal) {
	i.mu.Lock()
	i.signals |= s
	i.mu.Unlock()
	select {
	case i.signaled <- struct{}{}:
	default:
	}
}

// post hands over an event, and reports whether it was taken: it is not once the loop has ended.
func (i *inputs) post(ev *event) bool {
	select {
	case i.events <- ev:
		return true
	case <-i.ended:
		return false
	}
}

// takeSignal takes the lowest signal; 0: there is none.
func (i *inputs) takeSignal() signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.signals & -i.signals
	i.signals &^= s
	return s
}

// next waits for something to take in: an event, or else a signal. Events come first: whoever
// posts them posts few and waits, while signals may be given without end. The tick comes last:
// what else is there may be the acknowledgement, or the end of a drain, whose absence a tick at
// its time would find.
func (l *loop) next() (signal, *event) {
	for {
		select {
		case ev := <-l.events:
			return 0, ev
		default:
		}
		if s := l.takeSignal(); s != 0 {
			return s, nil
		}
		select {
		case ev := <-l.events:
			return 0, ev
		case <-l.signaled:
		case <-l.stop:
			l.stop = nil
			l.signal(stopping)
		case <-l.timer.C:
			l.signal(ticked)
		}
	}
}
