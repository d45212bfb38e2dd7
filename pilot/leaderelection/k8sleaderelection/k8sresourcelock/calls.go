package k8sresourcelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// calls are those for locks that are under way, and those that wait.
type calls struct {
	mu       sync.Mutex
	underway int
	waiting  []*job
}

// job is a call that waits for others to end.
type job struct {
	run   func(ended func())
	taken bool   // there was room for it
	stop  func() // of what bounds its wait
}

// Call has run called on a goroutine of its own; run has to call ended. While there are CallsAtOnce under way it
// waits, but for no longer than patience: hanging calls must not hold up all others for ever. If ctx ends while it
// waits, late is called instead.
//
// Waiting counts for an elector: a call's deadline and the cover that it brings run from when the call was decided on.
func (s *Shared) Call(ctx context.Context, patience time.Duration, run func(ended func()), late func()) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	if s.CallsAtOnce == 0 || s.calls.underway < s.CallsAtOnce {
		s.calls.underway++
		go run(s.callEnded)
		return
	}
	j := &job{run: run}
	bound, cancel := context.WithTimeout(ctx, patience)
	stopAfterFunc := context.AfterFunc(bound, func() {
		switch {
		case !s.calls.take(j):
		case ctx.Err() != nil:
			s.callEnded()
			late()
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

// take counts j among those that are under way, unless it has been.
func (c *calls) take(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.taken {
		return false
	}
	c.underway++
	c.waiting = slices.DeleteFunc(c.waiting, func(o *job) bool { return o == j })
	return true
}

// callEnded makes room for the next.
func (s *Shared) callEnded() {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.underway > s.CallsAtOnce {
		c.underway--
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
