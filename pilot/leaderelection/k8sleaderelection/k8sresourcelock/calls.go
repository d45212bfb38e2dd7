package k8sresourcelock

import (
	"context"
	"time"
)

// Call runs run on a new goroutine. run must call ended when it has finished. If MaxConcurrentCalls calls are
// running, it waits for at most maxWait, because hanging calls must not block others forever. A call that has waited
// so long runs beyond the limit. If ctx is done while it waits, it calls cancelled instead of run.
//
// The waiting time counts for the elector: deadline and validity of a call start when the elector decided to send
// it.
func (s *Shared) Call(ctx context.Context, maxWait time.Duration, run func(ended func()), cancelled func()) {
	if s.MaxConcurrentCalls == 0 {
		go run(func() {})
		return
	}
	running := s.limit()
	ended := func() { <-running }
	select {
	case running <- struct{}{}:
		go run(ended)
		return
	default:
	}
	go func() {
		select {
		case running <- struct{}{}:
		case <-ctx.Done():
			ended = func() {}
		case <-time.After(maxWait):
			ended = func() {}
		}
		if ctx.Err() != nil {
			ended()
			cancelled()
			return
		}
		run(ended)
	}()
}

// limit returns the channel with one element for each running call within the limit.
func (s *Shared) limit() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = make(chan struct{}, s.MaxConcurrentCalls)
	}
	return s.running
}
