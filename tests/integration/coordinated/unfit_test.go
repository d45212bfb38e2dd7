package coordinated

import "testing"

// A leader is not disturbed for one that would give the lock back, though that is of the default revision; it hands over once that one is fit.
func TestAnUnfitCandidateBesideALeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	w.coordinate()
	leader := w.candidate("canary-1", "canary", brisk)
	w.await("it leads, as it is alone", leader.leads.Load)
	unfit := w.unfit("stable-1", "stable")
	w.await("the other is published", func() bool { return w.leaseCandidate("stable-1") != nil })
	began := h.renewals("canary-1.x")
	w.await("its term goes on", func() bool { return h.named("stable-1.x") > 0 || h.renewals("canary-1.x") >= began+8 })
	if n := h.named("stable-1.x"); n > 0 || leader.terms.Load() != 1 {
		t.Errorf("the unfit one was named %d times, and the leader led in %d terms", n, leader.terms.Load())
	}
	unfit.unfit.Store(false)
	w.await("it leads once it is fit", unfit.leads.Load)
}
