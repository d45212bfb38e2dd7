package k8sresourcelock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// limitedCalls makes calls that run until the test ends them.
type limitedCalls struct {
	*testing.T
	shared *Shared
	ends   map[string]func()

	mu               sync.Mutex
	began, cancelled []string
}

func newLimitedCalls(t *testing.T, limit int) *limitedCalls {
	return &limitedCalls{T: t, shared: &Shared{MaxConcurrentCalls: limit}, ends: map[string]func(){}}
}

func (c *limitedCalls) call(ctx context.Context, name string, maxWait time.Duration) {
	end := make(chan struct{})
	c.ends[name] = func() { close(end); synctest.Wait() }
	c.shared.Call(ctx, maxWait, func(ended func()) {
		c.add(&c.began, name)
		<-end
		ended()
	}, func() { c.add(&c.cancelled, name) })
	synctest.Wait()
}

func (c *limitedCalls) add(to *[]string, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, name)
}

func (c *limitedCalls) want(began ...string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.began, began) {
		c.Errorf("started %q, want %q", c.began, began)
	}
}

func TestCall_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLimitedCalls(t, 2)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.call(t.Context(), "a", time.Minute)
		c.call(t.Context(), "b", time.Minute)
		c.call(t.Context(), "c", time.Minute)
		c.call(short, "late", time.Minute)
		c.call(t.Context(), "d", time.Minute)
		c.want("a", "b")
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(c.cancelled, []string{"late"}) {
			t.Errorf("cancelled %q", c.cancelled)
		}
		for _, name := range []string{"b", "a", "c", "d"} {
			c.ends[name]()
		}
		c.want("a", "b", "c", "d")
		if n := len(c.shared.calls.running); n != 0 {
			t.Errorf("%d calls count as running", n)
		}
	})
}
