package k8sresourcelock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCall_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{MaxConcurrentCalls: 2}
		end := make(chan struct{})
		var began, late []int
		call := func(ctx context.Context, i int) {
			d.Call(ctx, time.Minute, func(ended func()) {
				began = append(began, i)
				<-end
				ended()
			}, func() { late = append(late, i) })
			synctest.Wait()
		}
		for i := range 3 {
			call(t.Context(), i)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		call(short, 3)
		call(t.Context(), 4)
		if want := []int{0, 1}; !slices.Equal(began, want) {
			t.Fatalf("%v are under way, want %v", began, want)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if want := []int{3}; !slices.Equal(late, want) {
			t.Errorf("%v came too late, want %v", late, want)
		}
		for range 4 {
			end <- struct{}{}
			synctest.Wait()
		}
		if want := []int{0, 1, 2, 4}; !slices.Equal(began, want) {
			t.Errorf("%v were made, want %v", began, want)
		}
		if d.calls.running != 0 || len(d.calls.waiting) != 0 {
			t.Errorf("%d under way, %d waiting", d.calls.running, len(d.calls.waiting))
		}
	})
}

// countedContext is a context that counts the functions that wait for its end.
type countedContext struct {
	context.Context
	mu      sync.Mutex
	waiting int
}

// Value hides the inner context from the package context.
func (*countedContext) Value(any) any { return nil }

// AfterFunc implements an optional interface of the package context.
func (c *countedContext) AfterFunc(f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
		return stop()
	}
}

func (c *countedContext) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// When a call ends, the next one starts immediately, in the order of Call.
func TestCall_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{MaxConcurrentCalls: 1}
		began := time.Now()
		end := make(chan struct{})
		var order []int
		for i := range 5 {
			d.Call(t.Context(), time.Minute, func(ended func()) {
				order = append(order, i)
				<-end
				ended()
			}, func() { t.Errorf("%d is given up", i) })
		}
		for i := range 5 {
			synctest.Wait()
			if len(order) != i+1 {
				t.Fatalf("%v were made after %d have ended", order, i)
			}
			end <- struct{}{}
		}
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || time.Since(began) != 0 || d.calls.running != 0 || d.calls.waiting != nil {
			t.Errorf("made %v in %v, %d under way", order, time.Since(began), d.calls.running)
		}
	})
}

// A call runs once, even if maxWait ends at the same time. Then nothing waits for the end of its context.
func TestCall_RunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{MaxConcurrentCalls: 1}
		made := 0
		d.Call(t.Context(), time.Minute, func(func()) {}, func() {})
		ctx := &countedContext{Context: t.Context()}
		d.Call(ctx, time.Minute, func(func()) { made++ }, func() { t.Error("given up") })
		if n := ctx.count(); n != 1 {
			t.Fatalf("%d wait for the end of its context", n)
		}
		j := d.calls.waiting[0]
		d.callEnded()
		if d.calls.take(j) || d.calls.running != 1 {
			t.Errorf("taken twice, %d are under way", d.calls.running)
		}
		if n := ctx.count(); n != 0 {
			t.Errorf("%d wait for the end of its context", n)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if made != 1 {
			t.Errorf("made %d times", made)
		}
		d.callEnded()
	})
}

// After maxWait, nothing waits for the end of the context.
func TestCall_MaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{MaxConcurrentCalls: 1}
		d.Call(t.Context(), time.Minute, func(func()) {}, func() {})
		made := 0
		patient := &countedContext{Context: t.Context()}
		d.Call(patient, time.Second, func(ended func()) { made++; ended() }, func() { t.Error("given up") })
		<-time.After(time.Second)
		synctest.Wait()
		if n := patient.count(); n != 0 || made != 1 {
			t.Errorf("%d wait for the end of its context, made %d times", n, made)
		}
	})
}

// After maxWait a call runs in spite of the limit. No other call starts until there is room again.
func TestCall_MaxWaitExceedsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{MaxConcurrentCalls: 1}
		var (
			mu    sync.Mutex
			calls = map[string]bool{}
			ends  = map[string]chan struct{}{}
		)
		began := func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			return calls[name]
		}
		call := func(name string, patience time.Duration) {
			ends[name] = make(chan struct{})
			over := ends[name]
			d.Call(t.Context(), patience, func(ended func()) {
				mu.Lock()
				calls[name] = true
				mu.Unlock()
				<-over
				ended()
			}, func() { t.Errorf("%s came too late", name) })
			synctest.Wait()
		}
		end := func(name string) {
			close(ends[name])
			synctest.Wait()
		}
		call("hangs", time.Hour)
		call("impatient", time.Second)
		call("patient", time.Hour)
		if began("impatient") || began("patient") {
			t.Error("limit exceeded")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !began("impatient") || began("patient") {
			t.Errorf("after the patience of one: %v, %v", began("impatient"), began("patient"))
		}
		if end("hangs"); began("patient") {
			t.Error("the next began although one is under way")
		}
		if end("impatient"); !began("patient") {
			t.Error("the next did not begin when there was room")
		}
		end("patient")
	})
}
