package upgrade

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// Install canary, flip to it, reinstall stable, flip back, uninstall canary.
func TestUpgrade(t *testing.T) {
	w := start(t, rollout.Options{})
	harness.Must(w.t, w.UpgradeAndBack(t.Context()))
	v := w.finish()
	if len(v.Flips) != 2 {
		t.Errorf("%d flips finished, want 2", len(v.Flips))
	}
	_, err := w.Helm(t.Context(), "uninstall", "tags")
	harness.Must(w.t, err)
	harness.Must(w.t, w.Uninstall(t.Context(), "stable"))
	w.wantNoLeftovers()
}
