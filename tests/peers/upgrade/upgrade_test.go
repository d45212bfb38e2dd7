package upgrade

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const root = "../../.."

// start compiles everything, and starts a cluster in which the two controllers work that istiodlike has.
func start(t *testing.T) *rollout.Rollout {
	t.Helper()
	if os.Getenv("UPGRADE") != "whole" {
		t.Skip("make upgrade-test runs it")
	}
	folder := t.TempDir()
	for _, args := range [][]string{
		{"build", "-o", folder, "../istiodlike"},
		{"-C", root, "build", "-o", folder, "./cmd/pilot", "./tests/cluster/dataplane"},
		{"-C", filepath.Join(root, "tools", "helm"), "build", "-buildvcs=false", "-o", filepath.Join(folder, "helm"), "."},
	} {
		if said, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, said)
		}
	}
	charts, err := filepath.Abs(filepath.Join(root, "deploy", "charts"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r, err := rollout.Start(t.Context(), rollout.Options{
		Pilot: filepath.Join(folder, "pilot"), Dataplane: filepath.Join(folder, "dataplane"), Helm: filepath.Join(folder, "helm"), Charts: charts,
		Images: map[string]string{"istiodlike": filepath.Join(folder, "istiodlike")},
		// Its timing is istiod's: the two then wait for each other by the same figures. The fence knows accounts and pods, not electors,
		// and would refuse what istiod's elector lets through: what that comes to is measured here, so it is off.
		Lease: 30 * time.Second, Renew: 15 * time.Second, Retry: 7500 * time.Millisecond, Unfenced: true, WithoutGateways: true,
		Seed: uint64(began.UnixNano()), Say: func(text string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), text) },
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		if err := r.End(ctx); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// goes does the upgrade and the way back.
func goes(t *testing.T, stable, canary string) verdict.Verdict {
	r, ctx := start(t), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// A revision of istiod's elector leads no elections of its own, so nothing waits for those.
	install := func(revision, image string, replicas int32) {
		t.Helper()
		must(r.Apply(ctx, rollout.Release{Revision: revision, Replicas: replicas, Image: image}))
		must(r.AwaitReady(ctx, revision, int(replicas)))
	}
	flip := func(revision string) {
		t.Helper()
		must(r.Flip(ctx, revision))
		must(r.AwaitLeads(ctx, revision))
	}
	install("stable", stable, 3)
	flip("stable")
	must(r.Work(ctx))
	install("canary", canary, 2)
	flip("canary")
	must(r.Settle(ctx))
	flip("stable")
	must(r.Settle(ctx))
	must(r.Rest())
	var peers []string
	for revision, image := range map[string]string{"stable": stable, "canary": canary} {
		if image != "" {
			peers = append(peers, revision)
		}
	}
	v, err := r.Settled(ctx, func(c *verdict.Config) { c.Peers = peers })
	must(err)
	t.Logf("the figures:\n%v", v.Figures)
	return v
}

// Stable elects by istiod's elector, canary by ours, and what ours writes is never late. istiod's writes are measured.
func TestUpgradeFromIstiod(t *testing.T) {
	if err := goes(t, "istiodlike", "").Err(); err != nil {
		t.Error(err)
	}
}

// Both elect by istiod's: what is measured is what ours is compared with.
func TestUpgradeBetweenIstiods(t *testing.T) {
	for _, c := range goes(t, "istiodlike", "istiodlike").Violations {
		t.Log(c)
	}
}

// The same with ours in both.
func TestUpgradeBetweenOurs(t *testing.T) {
	if err := goes(t, "", "").Err(); err != nil {
		t.Error(err)
	}
}
