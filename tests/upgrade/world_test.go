package upgrade

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// endLimit bounds the wait for a handover request, and the requests after a failure.
const endLimit = 2 * time.Minute

// root is the root of the repository.
const root = "../.."

// built is the folder of the built programs.
var built string

// programs builds the programs once for all tests.
var programs = sync.OnceValues(func() (options rollout.Options, err error) {
	if built, err = os.MkdirTemp("", "upgrade-"); err != nil {
		return options, err
	}
	return options, options.Build(context.Background(), root, built)
})

// build sets the programs in the options.
func build(t *testing.T, options *rollout.Options) {
	t.Helper()
	b, err := programs()
	harness.Must(t, err)
	options.Pilot, options.Dataplane, options.Helm, options.Charts = b.Pilot, b.Dataplane, b.Helm, b.Charts
}

// seed returns UPGRADE_SEED, or a new seed. The rollout logs it.
func seed(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv("UPGRADE_SEED")
	if given == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("UPGRADE_SEED=%q is not a number", given)
	}
	return n
}

// world is the rollout of a test.
type world struct {
	*rollout.Rollout
	t *testing.T
}

func start(t *testing.T, options rollout.Options) *world {
	t.Helper()
	build(t, &options)
	began := time.Now()
	options.Seed = seed(t)
	options.Log = func(text string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), text) }
	r, err := rollout.Start(t.Context(), options)
	w := &world{r, t}
	t.Cleanup(func() {
		if t.Failed() && r.Node != nil {
			w.showLogs()
			w.showObjects()
		}
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
	harness.Must(w.t, err)
	return w
}

// showLogs logs the end of the log of each server and proxy.
func (w *world) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(w.Cluster.Dir(), "pods", "*pilot-*", "*log*"))
	proxies, _ := filepath.Glob(filepath.Join(w.Cluster.Dir(), "pods", "shop_*", "*log*"))
	logs = append(logs, proxies...)
	for _, name := range logs {
		if said, err := os.ReadFile(name); err == nil {
			w.t.Logf("%s:\n%s", name, said[max(0, len(said)-6000):])
		}
	}
}

// showObjects logs the Gateways with their Deployments and Pods.
func (w *world) showObjects() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), endLimit)
	defer cancel()
	objects, err := w.Shell(ctx, built, "kubectl get gateways,deployments,pods --all-namespaces --output=yaml").CombinedOutput()
	w.t.Logf("objects (%v):\n%s", err, objects)
}

// finish stops the load, waits for the desired state, logs the figures, and fails the test for each violation.
func (w *world) finish() verdict.Verdict {
	w.t.Helper()
	w.Step("stop the load")
	harness.Must(w.t, w.StopLoad())
	v, err := w.AwaitWanted(w.t.Context())
	harness.Must(w.t, err)
	w.t.Logf("figures:\n%v", v.Figures)
	if err := v.Err(); err != nil {
		w.t.Error(err)
	}
	report, err := w.Audit()
	harness.Must(w.t, err)
	for _, f := range report.Findings {
		w.t.Errorf("electionctl audit: %s of %s in %s at %v", f.Rule, f.Pod, f.Lock.Name, f.First)
	}
	if len(report.Incomplete) > 0 || len(report.Locks) == 0 {
		w.t.Errorf("electionctl audit: %d locks, %q", len(report.Locks), report.Incomplete)
	}
	return v
}

// begin lets three replicas of stable lead everything, and starts the load.
func (w *world) begin() {
	w.t.Helper()
	ctx := w.t.Context()
	harness.Must(w.t, w.Install(ctx, rollout.Release{Revision: "stable", Replicas: 3}))
	harness.Must(w.t, w.Lead(ctx, "stable"))
	harness.Must(w.t, w.StartLoad(ctx))
}

func (w *world) awaitWanted() {
	w.t.Helper()
	_, err := w.AwaitWanted(w.t.Context())
	harness.Must(w.t, err)
}

// wantNoLeftovers checks that nothing remains after everything was uninstalled.
func (w *world) wantNoLeftovers() {
	w.t.Helper()
	left, err := w.Leftovers(w.t.Context())
	harness.Must(w.t, err)
	if len(left) > 0 {
		w.t.Errorf("leftovers: %q", left)
	}
}
