package k8sleaderelection

import (
	"sync"

	"incumbent.dev/incumbent/internal/apirequest"
)

// signal is a set of inputs that need no queue, because one of each is enough. The loop handles the lowest first.
type signal uint8

const (
	stopping           signal = 1 << iota // Run's context is done
	refresh                               // Refresh
	stepDown                              // StepDown
	watchEvent                            // the subscription has news
	coordinatorChanged                    // SetCoordinatorAbsent
	fitnessChanged                        // SetUnfit
	barChanged                            // SetBarred
	ticked                                // a timer
)

// inputs holds the events and signals that a loop has not handled yet.
type inputs struct {
	events chan *event
	// ended is closed when the loop takes no more inputs.
	ended    chan struct{}
	signaled apirequest.Signal // there are signals

	mu      sync.Mutex
	signals signal
}

func newInputs() inputs {
	return inputs{events: make(chan *event), ended: make(chan struct{}), signaled: apirequest.NewSignal()}
}

// signal raises a signal. It does not block.
func (i *inputs) signal(s signal) {
	i.mu.Lock()
	i.signals |= s
	i.mu.Unlock()
	i.signaled.Send()
}

// post sends an event and reports whether the loop took it. An ended loop takes none.
func (i *inputs) post(ev *event) bool {
	select {
	case i.events <- ev:
		return true
	case <-i.ended:
		return false
	}
}

// takeSignal removes and returns the lowest signal, or 0.
func (i *inputs) takeSignal() signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.signals & -i.signals
	i.signals &^= s
	return s
}

// next waits for an event or a signal. Events come first: each sender waits, while signals can be raised without limit. The
// tick comes last, because another input may be the acknowledgement or the end of a drain that the tick would miss.
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
