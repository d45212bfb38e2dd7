package coordinated

import (
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

const (
	absent      = "coordinator chose no leader for three lease durations"
	chosenAgain = "coordinator chooses the leader again"
)

// Kubernetes' controller makes the lock of candidates that ask for a strategy of ours, and nobody chooses by that. After three lease durations
// the candidates' keys decide; who leads by that says so once, and so does the next. A coordinator that comes late is heard.
func TestNobodyCoordinates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	ranked := func(c *leaderelection.Config) { brisk(c); c.DefaultWatcher = w.revision }
	first, second := w.candidate("stable-1", "stable", ranked), w.candidate("canary-1", "canary", ranked)
	w.await("one leads", func() bool { return first.leads.Load() || second.leads.Load() })
	pods := []string{"stable-1.x", "canary-1.x"}
	if second.leads.Load() { // each counts from when it has seen the lock
		first, second = second, first
		slices.Reverse(pods)
	}
	taken := w.lease()
	if earliest := taken.CreationTimestamp.Add(3 * briskLease); taken.Spec.AcquireTime.Add(time.Second).Before(earliest) {
		t.Errorf("taken at %v, although the lock was made at %v and a coordinator had three leases", taken.Spec.AcquireTime, taken.CreationTimestamp)
	}
	w.await("its term goes on", func() bool { return h.renewals(pods[0]) >= 5 })
	first.stop()
	w.await("the other leads", second.leads.Load)
	w.await("its term goes on", func() bool { return h.renewals(pods[1]) >= 5 })
	for _, c := range []*candidate{first, second} {
		said, led := strings.Index(c.log.String(), absent), strings.Index(c.log.String(), "to=leading")
		if n := c.log.Count(absent); n != 1 || led < said {
			t.Errorf("it is said %d times, and after a term began?\n%s", n, c.log.String())
		}
		if c.log.Count(chosenAgain) > 0 {
			t.Errorf("nobody has chosen yet:\n%s", c.log.String())
		}
	}
	made := h.versions()[0]
	if value(made.Spec.HolderIdentity) != "" || string(value(made.Spec.Strategy)) != coordination.DefaultRevision {
		t.Errorf("at first the lock was %+v", made.Spec)
	}
	if got := h.led(); !slices.Equal(got, []string{"", pods[0], "", pods[1]}) || len(h.preferred()) > 0 || h.falls() {
		t.Errorf("the leaders were %q, preferred were %q", got, h.preferred())
	}

	w.coordinate()
	w.revision.Set("third")
	third := w.candidate("third-1", "third", ranked)
	w.await("the coordinator's choice leads", third.leads.Load)
	w.await("the leader before says that it was chosen", func() bool { return second.log.Count(chosenAgain) == 1 })
	if got := h.preferred(); !slices.Equal(got, []string{"third-1.x"}) || second.log.Count(absent) != 1 {
		t.Errorf("preferred were %q, and the leader before says:\n%s", got, second.log.String())
	}
}
