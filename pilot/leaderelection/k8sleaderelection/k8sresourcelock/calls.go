package k8sresourcelock

import (
	"context"
	"sync"
	"time"
)

// calls limits the calls that run at the same time.
type calls struct {
	mu sync.Mutex
	// running has one element for each running call within the limit. It is nil before the first call.
	running chan struct{}
	// excess is the number of running calls beyond the limit.
	excess int
}

// Call runs run on a new goroutine. run must call ended when it has finished. If MaxConcurrentCalls calls are
// running, it waits for at most maxWait, because hanging calls must not block others forever. If ctx is done while
// it waits, it calls cancelled instead of run.
//
// The waiting time counts for the elector: deadline and validity of a call start when the elector decided to send
// it.
func (s *Shared) Call(ctx context.Context, maxWait time.Duration, run func(ended func()), cancelled func()) {
	if s.MaxConcurrentCalls == 0 {
		go run(func() {})
		return
	}
	running := s.calls.limit(s.MaxConcurrentCalls)
	select {
	case running <- struct{}{}:
		go run(s.calls.ended)
		return
	default:
	}
	go func() {
		select {
		case running <- struct{}{}:
		case <-ctx.Done():
			s.calls.exceed()
		case <-time.After(maxWait):
			s.calls.exceed()
		}
		if ctx.Err() != nil {
			s.calls.ended()
			cancelled()
			return
		}
		run(s.calls.ended)
	}()
}

func (c *calls) limit(n int) chan<- struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(chan struct{}, n)
	}
	return c.running
}

func (c *calls) exceed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excess++
}

// ended makes room for the next call, unless calls beyond the limit still run.
func (c *calls) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.excess > 0 {
		c.excess--
		return
	}
	<-c.running
}
