package k8sleaderelection

import (
	"context"
	"slices"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// watched notes from where it is watched.
type watched struct{ from []string }

func (w *watched) Watch(_ context.Context, from string, up func(), _ func(k8sresourcelock.Snapshot)) (string, error) {
	w.from = append(w.from, from)
	up()
	return "1000", nil
}

// The store may go back in time while the watch is down. A version that is yet to come is
// nothing to go on from.
func TestRestartBetweenTwoWatches(t *testing.T) {
	lock := &watched{}
	f := &follower{lock: lock}
	var gaps []bool
	up := func(gap bool) { gaps = append(gaps, gap) }
	resume, err := f.watch(t.Context(), "900", up, nil)
	if err != nil || resume != "1000" {
		t.Fatal(resume, err)
	}
	f.restart()
	if _, err := f.watch(t.Context(), resume, up, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.watch(t.Context(), resume, up, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"900", "", "1000"}; !slices.Equal(lock.from, want) || !slices.Equal(gaps, []bool{false, true, false}) {
		t.Errorf("watched from %q, with gaps %v", lock.from, gaps)
	}
}

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
