package k8sresourcelock

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestCall_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &Shared{MaxConcurrentCalls: 2}
		ends := map[string]chan struct{}{}
		var happened []string
		call := func(ctx context.Context, name string) {
			end := make(chan struct{})
			ends[name] = end
			shared.Call(ctx, time.Minute, func(ended func()) {
				happened = append(happened, name)
				<-end
				ended()
			}, func() { happened = append(happened, name+" is cancelled") })
			synctest.Wait()
		}
		want := func(all ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(happened, all) {
				t.Errorf("calls %q, want %q", happened, all)
			}
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
		want("a", "b", "late is cancelled")
		for _, name := range []string{"b", "a", "c", "d"} {
			close(ends[name])
			synctest.Wait()
		}
		want("a", "b", "late is cancelled", "c", "d")
		happened = nil
		for _, name := range []string{"e", "f", "g"} {
			call(t.Context(), name)
		}
		time.Sleep(time.Minute)
		want("e", "f", "g") // beyond the limit
		for _, name := range []string{"e", "f", "g"} {
			close(ends[name])
		}
		synctest.Wait()
		if n := len(shared.calls.running); n != 0 {
			t.Errorf("%d calls count as running", n)
		}
		happened = nil
		new(Shared).Call(t.Context(), time.Minute, func(func()) { happened = append(happened, "unlimited") }, nil)
		want("unlimited")
	})
}
