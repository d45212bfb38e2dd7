package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const root = "../../.."

// start builds the programs and starts a cluster with the two controllers that istiodlike has.
func start(t *testing.T) *rollout.Rollout {
	t.Helper()
	if os.Getenv("UPGRADE") != "whole" {
		t.Skip("make upgrade-test runs it")
	}
	folder := t.TempDir()
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "../istiodlike").CombinedOutput(); err != nil {
		t.Fatalf("build istiodlike: %v\n%s", err, said)
	}
	began := time.Now()
	options := rollout.Options{
		Images: map[string]string{"istiodlike": filepath.Join(folder, "istiodlike")},
		// The timing is istiod's. The fence is off, because it would reject the late writes that are measured here.
		Lease: 30 * time.Second, Renew: 15 * time.Second, Retry: 7500 * time.Millisecond, WithoutFence: true, WithoutGateways: true,
		Seed: uint64(began.UnixNano()), Log: func(text string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), text) },
	}
	if err := options.Build(t.Context(), root, folder); err != nil {
		t.Fatal(err)
	}
	r, err := rollout.Start(t.Context(), options)
	t.Cleanup(func() {
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// upgradeAndBack does an upgrade and the way back.
func upgradeAndBack(t *testing.T, stable, canary string) verdict.Verdict {
	r, ctx := start(t), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// A revision with istiod's elector has no elections per revision to wait for.
	install := func(revision, image string, replicas int32) {
		t.Helper()
		must(r.Apply(ctx, rollout.Release{Revision: revision, Replicas: replicas, Image: image}))
		must(r.AwaitReady(ctx, revision, int(replicas)))
	}
	install("stable", stable, 3)
	must(r.Lead(ctx, "stable"))
	must(r.StartLoad(ctx))
	install("canary", canary, 2)
	must(r.Lead(ctx, "canary"))
	must(r.Lead(ctx, "stable"))
	must(r.StopLoad())
	var peers []string
	for revision, image := range map[string]string{"stable": stable, "canary": canary} {
		if image != "" {
			peers = append(peers, revision)
		}
	}
	v, err := r.AwaitWanted(ctx, func(c *verdict.Config) { c.Peers = peers })
	must(err)
	t.Logf("figures:\n%v", v.Figures)
	wantAudit(t, r, stable != "" || canary != "", func(pod string) bool {
		return stable != "" && strings.HasPrefix(pod, "pilot-stable") || canary != "" && strings.HasPrefix(pod, "pilot-canary")
	})
	return v
}

// wantAudit judges the log as electionctl audit does. It must judge the writes of both shared elections, whose locks are
// ConfigMaps, and convict istiod's elector only.
func wantAudit(t *testing.T, r *rollout.Rollout, convict bool, peer func(pod string) bool) {
	t.Helper()
	report, err := r.Audit()
	if err != nil || len(report.Incomplete) > 0 || report.ByTime > 0 || len(report.NotJudged) > 0 {
		t.Fatalf("%v, incomplete %q, %d writes by time, not judged %v", err, report.Incomplete, report.ByTime, report.NotJudged)
	}
	shared := 0
	for _, l := range report.Locks {
		t.Logf("%v: %d terms, %d writes, %d without the lock", l.Lock, l.Terms, l.Judged, l.Breaches)
		if l.Resource == "configmaps" && l.Terms >= 3 && l.Judged > 0 {
			shared++
		}
	}
	convicted := false
	for _, f := range report.Findings {
		t.Logf("finding: %s of %s in %s: %d writes, %v after the loss, overlap %v", f.Rule, f.Pod, f.Lock.Name, f.Count, time.Duration(f.Late), time.Duration(f.Overlap))
		if convicted = convicted || peer(f.Pod); !peer(f.Pod) {
			t.Errorf("%s of %s in %s", f.Rule, f.Pod, f.Lock.Name)
		}
	}
	if convicted != convict || shared != 2 {
		t.Errorf("the audit of %d shared elections convicts istiod's elector: %v, want %v", shared, convicted, convict)
	}
}

// Stable uses istiod's elector, canary incumbent's. incumbent's writes are never late; istiod's late writes are counted.
func TestUpgradeFromIstiod(t *testing.T) {
	if err := upgradeAndBack(t, "istiodlike", "").Err(); err != nil {
		t.Error(err)
	}
}

// Both revisions use istiod's elector, for comparison.
func TestUpgradeBetweenIstiods(t *testing.T) {
	for _, c := range upgradeAndBack(t, "istiodlike", "istiodlike").Violations {
		t.Log(c)
	}
}

func TestUpgradeBetweenIncumbents(t *testing.T) {
	if err := upgradeAndBack(t, "", "").Err(); err != nil {
		t.Error(err)
	}
}
