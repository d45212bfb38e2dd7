package revisions

import (
	"slices"
	"testing"
	"testing/synctest"
)

func newTestBroadcaster() *broadcaster[string] {
	return newBroadcaster(func(a, b string) bool { return a == b })
}

func TestBroadcaster_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroadcaster()
		var early, late []string
		b.handle(func(v string) { early = append(early, v) })
		synctest.Wait()
		if len(early) != 0 {
			t.Errorf("told %q while nothing is known", early)
		}
		for _, v := range []string{"", "", "a", "b", "b", "a"} {
			b.post(v)
		}
		synctest.Wait()
		b.handle(func(v string) { late = append(late, v) })
		b.post("c")
		synctest.Wait()
		if want := []string{"", "a", "b", "a", "c"}; !slices.Equal(early, want) {
			t.Errorf("first handler was told %q, want %q", early, want)
		}
		if want := []string{"a", "c"}; !slices.Equal(late, want) {
			t.Errorf("second handler was told %q, want %q", late, want)
		}
	})
}

func TestBroadcaster_HandlerMayCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroadcaster()
		var inner []string
		b.handle(func(v string) {
			b.read()
			if v == "a" {
				b.handle(func(v string) { inner = append(inner, v) })
				b.post("b")
			}
		})
		b.post("a")
		synctest.Wait()
		if want := []string{"a", "b"}; !slices.Equal(inner, want) {
			t.Errorf("handler added by a handler was told %q, want %q", inner, want)
		}
	})
}

func TestBroadcaster_RemovedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroadcaster()
		var gone, self, stays []string
		removed := make(chan struct{})
		removeGone := b.handle(func(v string) { gone = append(gone, v) })
		var removeSelf func()
		removeSelf = b.handle(func(v string) {
			self = append(self, v)
			removeSelf()
		})
		b.handle(func(v string) { stays = append(stays, v) })
		b.calls.Do(func() { <-removed })
		b.post("a") // waits for the call before
		removeGone()
		removeGone()
		close(removed)
		synctest.Wait()
		b.post("b")
		synctest.Wait()
		if len(gone) != 0 || !slices.Equal(self, []string{"a"}) || !slices.Equal(stays, []string{"a", "b"}) {
			t.Errorf("removed handler got %q, self-removing handler %q, remaining handler %q", gone, self, stays)
		}
		if len(b.handlers) != 1 {
			t.Errorf("%d handlers are left", len(b.handlers))
		}
	})
}
