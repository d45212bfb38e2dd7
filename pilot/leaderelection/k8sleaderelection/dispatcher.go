package k8sleaderelection

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Dispatcher is what the electors of one API server in a process can share: one timer,
// and a bound on how many calls they make at the same time. Many that begin together, or
// come back together after an outage, would otherwise open connection after connection
// (an API server serves a hundred streams or so on each) and as many goroutines, whose
// stacks the process keeps.
//
// Waiting counts: a call's deadline and the cover that it brings run from when the call
// was decided on. It lasts for half of the call's time at most. Share none among electors
// of different API servers all the same: one that hangs would delay the calls to the others.
type Dispatcher struct {
	limit int
	clock *Clock

	mu       sync.Mutex
	underway int
	waiting  []*job
	timer    *time.Timer // nil until it is needed
	alarms   alarms
}

// NewDispatcher returns one that lets up to limit calls be under way; 0 means any number.
func NewDispatcher(limit int) *Dispatcher {
	return &Dispatcher{limit: limit, clock: NewClock(nil)}
}

// job is a call that waits for others to end.
type job struct {
	run   func()
	taken bool   // there was room for it
	stop  func() // of what bounds its wait
}

// call has run called on a goroutine of its own; run has to call ended. While as many calls
// as the limit are under way it waits, but for no longer than patience: hanging calls must
// not hold up all others for ever. If ctx ends while it waits, late is called instead.
func (d *Dispatcher) call(ctx context.Context, patience time.Duration, run, late func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 || d.underway < d.limit {
		d.underway++
		go run()
		return
	}
	j := &job{run: run}
	bound, cancel := context.WithTimeout(ctx, patience)
	unheed := context.AfterFunc(bound, func() {
		switch {
		case !d.take(j):
		case ctx.Err() != nil:
			d.ended()
			late()
		default:
			run()
		}
	})
	j.stop = func() {
		unheed()
		cancel()
	}
	d.waiting = append(d.waiting, j)
}

// take counts j among those that are under way, unless it has been.
func (d *Dispatcher) take(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.taken {
		return false
	}
	d.underway++
	d.waiting = slices.DeleteFunc(d.waiting, func(o *job) bool { return o == j })
	return true
}

// ended makes room for the next.
func (d *Dispatcher) ended() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 || d.underway > d.limit {
		d.underway--
		return
	}
	j := d.waiting[0]
	if d.waiting = d.waiting[1:]; len(d.waiting) == 0 {
		d.waiting = nil
	}
	j.taken = true
	j.stop()
	go j.run()
}

// alarm is when a loop wants to be woken.
type alarm struct {
	ring func()
	at   core.Instant // by the Dispatcher's clock
	slot int          // one more than its place in alarms; 0: it is not set
}

// set has a.ring called after wait, and not at the time set before. ring is called on a
// goroutine that is its own.
func (d *Dispatcher) set(a *alarm, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.at = d.clock.mono().After(max(0, wait))
	if a.slot == 0 {
		heap.Push(&d.alarms, a)
	} else {
		heap.Fix(&d.alarms, a.slot-1)
	}
	if a.slot == 1 {
		d.arm()
	}
}

func (d *Dispatcher) unset(a *alarm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.slot > 0 {
		heap.Remove(&d.alarms, a.slot-1)
		d.arm()
	}
}

// arm sets the timer to the earliest alarm. The caller holds mu.
func (d *Dispatcher) arm() {
	switch {
	case len(d.alarms) == 0:
		d.timer.Stop() // made for the alarm that was the last
	case d.timer == nil:
		d.timer = time.AfterFunc(d.clock.mono().Until(d.alarms[0].at), d.ring)
	default:
		d.timer.Reset(d.clock.mono().Until(d.alarms[0].at))
	}
}

// ring sees to one alarm. If more are due the timer starts another goroutine for the next,
// so that none waits for what an alarm makes happen, and a thousand at once do not make a
// thousand goroutines.
func (d *Dispatcher) ring() {
	d.mu.Lock()
	var due *alarm
	if len(d.alarms) > 0 && d.alarms[0].at <= d.clock.mono() {
		due = heap.Pop(&d.alarms).(*alarm)
	}
	d.arm()
	d.mu.Unlock()
	if due != nil {
		due.ring()
	}
}

// alarms is a heap, the earliest first.
type alarms []*alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at < h[j].at }

func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

// Push implements heap.Interface.
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.slot = len(*h)
}

// Pop implements heap.Interface.
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.slot = 0
	return a
}
