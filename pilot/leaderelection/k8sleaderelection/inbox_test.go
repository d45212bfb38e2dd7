package k8sleaderelection

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A tick that is late must not find missing what has come meanwhile: an acknowledgement,
// or the end of a drain.
func TestInboxGivesTheTickLast(t *testing.T) {
	l := &loop{inbox: inbox{taking: true}}
	l.give(ticked)
	l.post(&event{in: core.Input{Kind: core.Replied}})
	l.give(told)
	l.post(&event{in: core.Input{Kind: core.Drained}})
	l.give(ticked)
	l.give(stopping)
	for i, want := range []struct {
		s    signal
		kind core.Kind
	}{{0, core.Replied}, {0, core.Drained}, {stopping, 0}, {told, 0}, {ticked, 0}} {
		s, ev := l.next()
		if s != want.s || (ev != nil) != (want.s == 0) || ev != nil && ev.in.Kind != want.kind {
			t.Errorf("%d: signal %d, event %+v; want %+v", i, s, ev, want)
		}
	}
	if s, ev := l.next(); s != 0 || ev != nil || l.inbox.taking {
		t.Errorf("then signal %d, event %+v, taking %v", s, ev, l.inbox.taking)
	}
}
