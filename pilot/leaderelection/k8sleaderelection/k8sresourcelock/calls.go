package k8sresourcelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// calls counts running calls and queues waiting calls.
type calls struct {
	mu      sync.Mutex
	running int
	waiting []*job
}

// job is a call that waits until other calls have ended.
type job struct {
	run   func(ended func())
	taken bool   // run was called
	stop  func() // cancels the end of the wait
}

// Call runs run on a new goroutine. run must call ended when it has finished. If MaxConcurrentCalls calls are
// running, it waits for at most maxWait, because hanging calls must not block others forever. If ctx is done while
// it waits, it calls cancelled instead of run.
//
// The waiting time counts for the elector: deadline and validity of a call start when the elector decided to send
// it.
func (s *Shared) Call(ctx context.Context, maxWait time.Duration, run func(ended func()), cancelled func()) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	if s.MaxConcurrentCalls == 0 || s.calls.running < s.MaxConcurrentCalls {
		s.calls.running++
		go run(s.callEnded)
		return
	}
	j := &job{run: run}
	bound, cancel := context.WithTimeout(ctx, maxWait)
	stopAfterFunc := context.AfterFunc(bound, func() {
		switch {
		case !s.calls.take(j):
		case ctx.Err() != nil:
			s.callEnded()
			cancelled()
		default:
			run(s.callEnded)
		}
	})
	j.stop = func() {
		stopAfterFunc()
		cancel()
	}
	s.calls.waiting = append(s.calls.waiting, j)
}

// take counts j as running. It returns false if j already runs.
func (c *calls) take(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.taken {
		return false
	}
	c.running++
	c.waiting = slices.DeleteFunc(c.waiting, func(o *job) bool { return o == j })
	return true
}

// callEnded starts the next waiting call.
func (s *Shared) callEnded() {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.running > s.MaxConcurrentCalls {
		c.running--
		return
	}
	j := c.waiting[0]
	if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	j.taken = true
	j.stop()
	go j.run(s.callEnded)
}
