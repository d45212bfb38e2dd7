package k8sleaderelection

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Dispatcher bounds how many calls the electors of one API server in a process make at the
// same time. Many that begin together, or come back together after an outage, would otherwise
// open connection after connection (an API server serves a hundred streams or so on each) and
// as many goroutines, whose stacks the process keeps.
//
// Waiting counts: a call's deadline and the cover that it brings run from when the call
// was decided on. It lasts for half of the call's time at most. Share none among electors
// of different API servers all the same: one that hangs would delay the calls to the others.
type Dispatcher struct {
	limit int

	mu       sync.Mutex
	underway int
	waiting  []*job
}

// NewDispatcher returns one that lets up to limit calls be under way; 0 means any number.
func NewDispatcher(limit int) *Dispatcher {
	return &Dispatcher{limit: limit}
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
	stopAfterFunc := context.AfterFunc(bound, func() {
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
		stopAfterFunc()
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
