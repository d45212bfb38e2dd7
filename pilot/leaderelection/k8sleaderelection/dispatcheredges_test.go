package k8sleaderelection

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a context that knows how many wait for its end.
type counted struct {
	context.Context
	mu      sync.Mutex
	waiting int
}

// Value hides the context below, which the package context would go to directly.
func (*counted) Value(any) any { return nil }

// AfterFunc is what the package context calls, if it is there.
func (c *counted) AfterFunc(f func()) func() bool {
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

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// As one ends the next begins, in the order in which they came, without any waiting for time.
func TestDispatcherGoesOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDispatcher(1)
		began := time.Now()
		end := make(chan struct{})
		var order []int
		for i := range 5 {
			d.call(t.Context(), time.Minute, func() {
				order = append(order, i)
				<-end
				d.ended()
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
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || time.Since(began) != 0 || d.underway != 0 || d.waiting != nil {
			t.Errorf("made %v in %v, %d under way", order, time.Since(began), d.underway)
		}
	})
}

// A call that there was room for is made once, also if its patience ends at that moment, and
// nothing waits for the end of its context any more.
func TestACallThatIsTakenIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDispatcher(1)
		made := 0
		d.call(t.Context(), time.Minute, func() {}, func() {})
		ctx := &counted{Context: t.Context()}
		d.call(ctx, time.Minute, func() { made++ }, func() { t.Error("given up") })
		if n := ctx.count(); n != 1 {
			t.Fatalf("%d wait for the end of its context", n)
		}
		j := d.waiting[0]
		d.ended()
		if d.take(j) || d.underway != 1 {
			t.Errorf("taken twice, %d are under way", d.underway)
		}
		if n := ctx.count(); n != 0 {
			t.Errorf("%d wait for the end of its context", n)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if made != 1 {
			t.Errorf("made %d times", made)
		}
		d.ended()
	})
}

// One that is made because its patience has ended leaves nobody waiting either.
func TestACallThatIsGivenUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDispatcher(1)
		d.call(t.Context(), time.Minute, func() {}, func() {})
		made := 0
		patient := &counted{Context: t.Context()}
		d.call(patient, time.Second, func() { made++; d.ended() }, func() { t.Error("given up") })
		<-time.After(time.Second)
		synctest.Wait()
		if n := patient.count(); n != 0 || made != 1 {
			t.Errorf("%d wait for the end of its context, made %d times", n, made)
		}
	})
}
