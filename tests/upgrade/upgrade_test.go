package upgrade

import (
	"testing"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// Install canary, flip to it, reinstall stable, flip back, uninstall canary.
func TestUpgrade(t *testing.T) {
	w := start(t, rollout.Options{})
	ctx := t.Context()
	w.begin()
	w.must(w.Install(ctx, rollout.Release{Revision: "canary", Replicas: 2}))
	w.must(w.Flip(ctx, "canary"))
	w.must(w.AwaitLeads(ctx, "canary"))
	w.awaitWanted()

	w.must(w.Uninstall(ctx, "stable"))
	w.must(w.Install(ctx, rollout.Release{Revision: "stable", Replicas: 3}))
	w.must(w.Flip(ctx, "stable"))
	w.must(w.AwaitLeads(ctx, "stable"))
	w.awaitWanted()
	w.must(w.Uninstall(ctx, "canary"))

	v := w.finish()
	if len(v.Flips) != 2 {
		t.Errorf("%d flips finished, want 2", len(v.Flips))
	}
	w.wantNoLeftovers("stable")
}
