package k8sleaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A tick that is late must not find missing what has come meanwhile: an acknowledgement,
// or the end of a drain.
func TestTheTickComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan struct{})
		close(stopped)
		l := &loop{inputs: newInputs(), timer: time.NewTimer(0)}
		<-time.After(time.Second) // it is late
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
			t.Errorf("then signal %d, event %+v, signals %d", s, ev, l.signals)
		}
	})
}

// Of a timer and an event that are there together, the event comes first, however often select picks the other.
func TestAnEventComesBeforeTheTimer(t *testing.T) {
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
			if first == ticked { // the timer was before it
				first, ev = l.next()
			}
			if first != 0 || ev == nil {
				t.Errorf("signal %d, event %+v", first, ev)
			}
			close(l.ended)
		})
	}
}

// Once the loop has ended nobody waits for it.
func TestAnEndedLoopTakesNothing(t *testing.T) {
	l := &loop{inputs: newInputs()}
	close(l.ended)
	if l.post(&event{}) {
		t.Error("it was taken")
	}
	for range 3 {
		l.signal(ticked)
	}
}
