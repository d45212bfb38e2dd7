package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// The lease that a record tells is believed within bounds: from a second to an hour.
func TestWhichLeaseAnOrderBelieves(t *testing.T) {
	const began = core.Instant(time.Hour)
	order := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10, Accepted: true}
	for recorded, believed := range map[time.Duration]time.Duration{
		0: time.Second, -time.Hour: time.Second, time.Second: time.Second, 2 * time.Second: 2 * time.Second,
		time.Hour: time.Hour, 1000 * time.Hour: time.Hour,
	} {
		snap := ledBy("a", 3)
		snap.Annotations.Request, snap.Record.Lease = order, recorded
		w := orderProgress{r: order, lease: time.Minute, began: began, changed: began}
		for _, passed := range []time.Duration{0, believed + time.Second} {
			if _, err := w.update(snap, nil, began.After(passed)); err != nil {
				t.Errorf("a lease of %v, after %v: %v", recorded, passed, err)
			}
		}
		if _, err := w.update(snap, nil, began.After(believed+time.Second+1)); !errors.Is(err, ErrNotExecuted) || w.lease != believed {
			t.Errorf("a lease of %v counts as %v: %v", recorded, w.lease, err)
		}
	}
}

// What became of an order that was not obeyed is told by what the lock shows.
func TestWhatIsToldOfAnOrderThatWasNotObeyed(t *testing.T) {
	order := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10}
	refused := ledBy("a", 3)
	refused.Annotations.Request = order
	refused.Annotations.Request.Refused = "not fit"
	for want, snap := range map[string]core.Snapshot{
		"a refuses: not fit":               refused,
		"the lock was given up":            ledBy("", 4),
		"b did not come, and c has taken ": ledBy("c", 4),
	} {
		w := orderProgress{r: order, lease: 10 * time.Second}
		if done, err := w.update(snap, nil, 1); done || !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), want) {
			t.Errorf("done %v, %v, want %s", done, err, want)
		}
	}
}
