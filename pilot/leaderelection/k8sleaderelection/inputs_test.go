package k8sleaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A late tick must not come before an acknowledgement or the end of a drain.
func TestNextOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan struct{})
		close(stopped)
		l := &loop{inputs: newInputs(), timer: time.NewTimer(0)}
		<-time.After(time.Second)
		for range 2 {
			l.signal(watchEvent)
		}
		go l.post(&event{in: core.Input{Kind: core.Replied}})
		synctest.Wait()
		for i, want := range []struct {
			s    signal
			kind core.Kind
		}{{0, core.Replied}, {watchEvent, 0}, {ticked, 0}, {stopping, 0}} {
			if i == 3 {
				l.stop = stopped
			}
			s, ev := l.next()
			if s != want.s || (ev != nil) != (want.s == 0) || ev != nil && ev.in.Kind != want.kind {
				t.Errorf("%d: signal %d, event %+v; want %+v", i, s, ev, want)
			}
		}
		go l.post(&event{in: core.Input{Kind: core.Drained}})
		if s, ev := l.next(); s != 0 || ev.in.Kind != core.Drained || l.stop != nil || l.signals != 0 {
			t.Errorf("signal %d, event %+v, signals %d", s, ev, l.signals)
		}
	})
}

// If a timer and an event are ready together, the event comes first, although select picks one at random.
func TestNextReturnsEventFirst(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{inputs: newInputs(), timer: time.NewTimer(time.Second)}
			var first signal
			var ev *event
			go func() { first, ev = l.next() }()
			go func() {
				<-time.After(time.Second)
				l.post(&event{})
			}()
			<-time.After(2 * time.Second)
			synctest.Wait()
			if first == ticked { // the timer fired before the event was posted
				first, ev = l.next()
			}
			if first != 0 || ev == nil {
				t.Errorf("signal %d, event %+v", first, ev)
			}
			close(l.ended)
		})
	}
}

func TestPost_EndedLoop(t *testing.T) {
	l := &loop{inputs: newInputs()}
	close(l.ended)
	if l.post(&event{}) {
		t.Error("an ended loop took an event")
	}
	for range 3 {
		l.signal(ticked) // does not block
	}
}
