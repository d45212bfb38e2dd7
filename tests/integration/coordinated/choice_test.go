package coordinated

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// The strategy's choice is a process that is not fit to lead: it gives the lock back, with an empty holder, since Kubernetes' controller
// crashes on none. Another is named and leads, and the unfit one is not named again before its back-off is over.
func TestAnUnfitNominee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	coordinator := w.coordinate()
	began := time.Now()
	unfit := w.unfit("stable-1", "stable")
	w.await("it has been named", func() bool { return h.named("stable-1.x") > 0 })
	other := w.candidate("canary-1", "canary", brisk)
	w.await("the other leads and goes on", func() bool { return other.leads.Load() && h.renewals("canary-1.x") >= 5 })
	holders, n := h.holders(), h.named("stable-1.x")
	if allowed := nominations(time.Since(began)); n > allowed {
		t.Errorf("it was named %d times, and %d are allowed:\n%s", n, allowed, coordinator.log.String())
	}
	if gave := slices.Index(holders, "stable-1.x") + 1; gave == 0 || holders[gave] != "" || unfit.terms.Load() > 0 {
		t.Errorf("the holders were %q, and it has led %d times", holders, unfit.terms.Load())
	}
	h.heldByNil(t)
}

// unfit is a candidate that is not fit to lead, from the beginning.
func (w *world) unfit(pod, revision string) *candidate {
	w.t.Helper()
	c := w.newCandidate(w.identity(pod, "pilot"), pod, revision, brisk)
	c.unfit.Store(true)
	w.run(c)
	return c
}

// electionDuration is how long a coordinator waits for an answer.
const electionDuration = 5 * time.Second

// nominations is how often one that refuses may be named in d: left alone for two election durations, and for twice as long each time.
func nominations(d time.Duration) (n int) {
	backOff := 2 * electionDuration
	for n = 1; d >= backOff; n++ {
		d -= backOff
		backOff *= 2
	}
	return n
}

// A candidate is deleted while it is waited for: the coordinator names another, and has nothing to complain of.
func TestDeletedBetweenPingAndChoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	candidates := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	coordinator := w.coordinate()
	renewed := metav1.NewMicroTime(time.Now())
	w.published("stable-1", coordination.DefaultRevision, &renewed, map[string]string{coordination.RevisionLabel: "stable"})
	w.await("it is asked", func() bool { return w.leaseCandidate("stable-1").Spec.PingTime != nil })
	other := w.candidate("canary-1", "canary", brisk)
	w.await("the other has been asked", func() bool {
		c := w.leaseCandidate("canary-1")
		return c != nil && c.Spec.PingTime != nil
	})
	if err := candidates.Delete(t.Context(), "stable-1.x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("the other leads", other.leads.Load)
	if got := h.holders(); !slices.Equal(got, []string{"", "canary-1.x"}) {
		t.Errorf("the holders were %q", got)
	}
	if coordinator.log.Count("level=WARN")+coordinator.log.Count("level=ERROR") > 0 {
		t.Errorf("the coordinator says:\n%s", coordinator.log.String())
	}

	published := w.leaseCandidate("canary-1")
	if err := candidates.Delete(t.Context(), published.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("one that lives publishes itself again", func() bool {
		c := w.leaseCandidate("canary-1")
		return c != nil && c.UID != published.UID && c.Labels[coordination.RevisionLabel] == "canary"
	})
	w.await("its term goes on", func() bool { return h.renewals("canary-1.x") >= 3 })
	if other.log.Count("level=WARN") > 0 || len(h.holders()) != 2 {
		t.Errorf("the holders were %q, and it says:\n%s", h.holders(), other.log.String())
	}
}
