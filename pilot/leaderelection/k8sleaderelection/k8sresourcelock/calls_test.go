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
		shared := &Shared{MaxConcurrentCalls: 2}
		ends := map[string]chan struct{}{}
		var mu sync.Mutex // synctest.Wait does not order a read before the writes after the next timer
		var happened []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			happened = append(happened, what)
		}
		call := func(ctx context.Context, name string) {
			end := make(chan struct{})
			ends[name] = end
			shared.Call(ctx, time.Minute, func(ended func()) {
				note(name)
				<-end
				ended()
			}, func() { note(name + " is cancelled") })
			synctest.Wait()
		}
		want := func(all ...string) { // since the last want
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(happened, all) {
				t.Errorf("calls %q, want %q", happened, all)
			}
			happened = nil
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		call(t.Context(), "a")
		call(t.Context(), "b")
		call(t.Context(), "c")
		call(short, "late")
		call(t.Context(), "d")
		want("a", "b")
		time.Sleep(time.Second)
		want("late is cancelled")
		for _, name := range []string{"b", "a", "c", "d"} {
			close(ends[name])
			synctest.Wait()
		}
		want("c", "d")
		for _, name := range []string{"e", "f", "g"} {
			call(t.Context(), name)
		}
		time.Sleep(time.Minute)
		want("e", "f", "g") // beyond the limit
		for _, name := range []string{"e", "f", "g"} {
			close(ends[name])
		}
		synctest.Wait()
		if n := len(shared.running); n != 0 {
			t.Errorf("%d calls count as running", n)
		}
		new(Shared).Call(t.Context(), time.Minute, func(func()) { note("unlimited") }, nil)
		want("unlimited")
	})
}
