package hooks

import (
	"slices"
	"sync"
	"time"
)

// limit is the number of functions that wait in a Queue. A leader reports a few per RetryPeriod, so a function may take many minutes
// before a report is lost.
const limit = 256

// Queue calls functions of a caller in its own goroutines, which exist only while there is a function to call. A panic of a function
// ends the process. The zero Queue is usable. Its methods do not block, except Wait.
type Queue struct {
	mu      sync.Mutex
	waiting []func() // for the goroutine of Do
	calling bool     // that goroutine exists
	// dropped counts the dropped functions, and reported those in a logged warning.
	dropped, reported uint64
	active            int
	idle              chan struct{} // closed when active becomes zero
}

// Do calls f after the functions of earlier calls of Do have returned. If too many are waiting, the oldest is dropped.
func (q *Queue) Do(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == limit {
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.dropped++
	}
	q.waiting = append(q.waiting, f)
	if !q.calling {
		q.calling = true
		q.begin()
		go q.callAll()
	}
}

// Go calls f in its own goroutine.
func (q *Queue) Go(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin()
	go func() {
		defer q.ended()
		f()
	}()
}

// GoAfter calls f in its own goroutine after the functions of earlier calls of Do, but at the latest after a second. It is for
// callbacks, which must not be dropped and may end the process.
func (q *Queue) GoAfter(f func()) {
	before := make(chan struct{})
	q.Do(func() { close(before) })
	q.Go(func() {
		select {
		case <-before:
		case <-time.After(time.Second):
		}
		f()
	})
}

// Wait waits until all functions have returned, for at most limit, and reports whether they have.
func (q *Queue) Wait(limit time.Duration) bool {
	q.mu.Lock()
	idle := q.idle
	active := q.active
	q.mu.Unlock()
	if active == 0 {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}

// Dropped returns the number of functions that were dropped.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// callAll calls the waiting functions. If one calls runtime.Goexit, another goroutine continues.
func (q *Queue) callAll() {
	done := false
	defer func() {
		if !done {
			go q.callAll()
		}
	}()
	for f := q.next(); f != nil; f = q.next() {
		f()
	}
	done = true
}

// next removes and returns the first function. It returns nil if the queue is empty.
func (q *Queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.calling = false
		q.end()
		return nil
	}
	f := q.waiting[0]
	q.waiting = q.waiting[1:]
	return f
}

func (q *Queue) ended() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end()
}

// begin and end count the goroutines. The caller holds mu.
func (q *Queue) begin() {
	if q.active == 0 {
		q.idle = make(chan struct{})
	}
	q.active++
}

func (q *Queue) end() {
	if q.active--; q.active == 0 {
		close(q.idle)
	}
}
