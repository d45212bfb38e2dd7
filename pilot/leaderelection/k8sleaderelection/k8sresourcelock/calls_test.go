package k8sresourcelock

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSharedBoundsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{CallsAtOnce: 2}
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
		if d.calls.underway != 0 || len(d.calls.waiting) != 0 {
			t.Errorf("%d under way, %d waiting", d.calls.underway, len(d.calls.waiting))
		}
	})
}

// Calls that hang hold up others for no longer than these have patience.
func TestSharedLetsNoCallWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Shared{CallsAtOnce: 1}
		hang := make(chan struct{})
		began := time.Now()
		made := make(chan time.Duration, 3)
		for i := range 3 {
			d.Call(t.Context(), 2*time.Second, func(ended func()) {
				made <- time.Since(began)
				if i == 0 {
					<-hang
				}
				ended()
			}, func() { t.Errorf("%d is given up", i) })
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		close(hang)
		synctest.Wait()
		close(made)
		if got, want := slices.Collect(all(made)), []time.Duration{0, 2 * time.Second, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("made after %v, want %v", got, want)
		}
		if d.calls.underway != 0 || len(d.calls.waiting) != 0 {
			t.Errorf("%d under way, %d waiting", d.calls.underway, len(d.calls.waiting))
		}
	})
}

// all is the rest of a closed channel.
func all[T any](c <-chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}
