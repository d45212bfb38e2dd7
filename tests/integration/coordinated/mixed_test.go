package coordinated

import (
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// An election becomes coordinated replica by replica, and goes back: two at once never act, each step ends with a leader, and the
// transitions grow all the while.
func TestAFleetIsSwitchedOverAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	ranked := func(c *leaderelection.Config) { brisk(c); c.DefaultWatcher = w.revision }
	var all []string // that have led, as each step has it
	leads := func(step, holder string, c *candidate) {
		t.Helper()
		w.await(step, func() bool { return c.leads.Load() && h.renewals(holder) >= 3 })
		all = append(all, holder)
	}

	stable, canary := w.candidate("stable-1", "stable", brisk, w.uncoordinated), w.candidate("canary-1", "canary", brisk, w.uncoordinated)
	leads("the key rule: the default revision leads", "stable-1", stable)

	canary.stop()
	canary = w.candidate("canary-2", "canary", ranked)
	w.await("the one that waits is published", func() bool { return w.leaseCandidate("canary-2") != nil })
	leads("mixed: the one that does not wait leads on", "stable-1", stable)
	if canary.leads.Load() {
		t.Error("one that waits leads beside a leader")
	}

	coordinator := w.coordinate()
	stable.stop()
	leads("the one that waits is named", "canary-2.x", canary)
	stable = w.candidate("stable-2", "stable", ranked)
	leads("coordinated: the default revision leads", "stable-2.x", stable)
	if spec := w.lease().Spec; string(value(spec.Strategy)) != coordination.DefaultRevision {
		t.Errorf("the lock is %+v", spec)
	}

	stable.stop()
	leads("the one that waits is named again", "canary-2.x", canary)
	stable = w.candidate("stable-3", "stable", brisk, w.uncoordinated)
	w.await("the one that does not wait says so", func() bool { return stable.log.Count(doesNotWait) == 1 })
	leads("mixed again: the one that waits leads on", "canary-2.x", canary)

	coordinator.stop()
	canary.stop()
	leads("the one that does not wait takes what is free", "stable-3", stable)
	canary = w.candidate("canary-3", "canary", brisk, w.uncoordinated)
	w.revision.Set("canary")
	leads("the key rule again: the new default revision leads", "canary-3", canary)

	for _, waits := range []string{"canary-2.x", "stable-2.x"} {
		if i := slices.IndexFunc(h.versions(), func(l *coordinationv1.Lease) bool { return value(l.Spec.HolderIdentity) == waits }); !nominated(h.versions()[i]) {
			t.Errorf("%s has taken the lock without being named: %+v", waits, h.versions()[i].Spec)
		}
	}
	all = slices.Compact(all)
	led := slices.Compact(slices.DeleteFunc(h.led(), func(who string) bool { return who == "" }))
	if !slices.Equal(led, all) || h.falls() || h.terms(t) != len(all) {
		t.Errorf("the leaders of %d terms were %q, and each step had %q", h.terms(t), led, all)
	}
}

// terms are the terms that the lock shows, each of them with one holder that has taken it.
func (h *history) terms(t *testing.T) int {
	t.Helper()
	holders := map[int32]string{}
	for _, l := range h.versions() {
		holder := value(l.Spec.HolderIdentity)
		if holder == "" || nominated(l) {
			continue
		}
		term := value(l.Spec.LeaseTransitions)
		if known, there := holders[term]; there && known != holder {
			t.Errorf("%s and %s have both had the term %d", known, holder, term)
		}
		holders[term] = holder
	}
	return len(holders)
}
