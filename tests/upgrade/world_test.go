package upgrade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// endLimit bounds the end of a cluster, in which its pods get their grace period.
const endLimit = 2 * time.Minute

// root is the repository's folder.
const root = "../.."

// built is the folder of the programs, once there is one.
var built string

// programs are built once for all tests of the package.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "upgrade-")
	if err != nil {
		return "", err
	}
	built = folder
	for _, args := range [][]string{
		{"build", "-o", folder, "incumbent.dev/incumbent/cmd/pilot", "incumbent.dev/incumbent/tests/cluster/dataplane"},
		{"-C", filepath.Join(root, "tools", "helm"), "build", "-buildvcs=false", "-o", filepath.Join(folder, "helm"), "."},
	} {
		if said, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return folder, fmt.Errorf("go %v: %w\n%s", args, err, said)
		}
	}
	return folder, nil
})

// build puts the programs into the options.
func build(t *testing.T, options *rollout.Options) {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	if options.Charts, err = filepath.Abs(filepath.Join(root, "deploy", "charts")); err != nil {
		t.Fatal(err)
	}
	options.Pilot, options.Dataplane, options.Helm = filepath.Join(folder, "pilot"), filepath.Join(folder, "dataplane"), filepath.Join(folder, "helm")
}

// seed is UPGRADE_SEED, or another one each time. It is printed.
func seed(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv("UPGRADE_SEED")
	if given == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("UPGRADE_SEED=%q is no number", given)
	}
	return n
}

// world is a rollout of a test.
type world struct {
	*rollout.Rollout
	t *testing.T
}

func start(t *testing.T, options rollout.Options) *world {
	t.Helper()
	build(t, &options)
	began := time.Now()
	options.Seed = seed(t)
	options.Say = func(text string) { t.Logf("%6.1f s  %s", time.Since(began).Seconds(), text) }
	r, err := rollout.Start(t.Context(), options)
	w := &world{r, t}
	t.Cleanup(func() {
		if t.Failed() && r.Node != nil {
			w.showLogs()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), endLimit)
		defer cancel()
		if err := r.End(ctx); err != nil {
			t.Error(err)
		}
	})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// showLogs prints the end of what each server and each of the shop's Gateways has said.
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

// finish ends the work, waits until all is as wanted, prints the figures, and fails the test for each violation.
func (w *world) finish(change ...func(*verdict.Config)) verdict.Verdict {
	w.t.Helper()
	w.Step(w.t.Context(), "the writer rests")
	w.must(w.Rest())
	v, err := w.Settled(w.t.Context(), change...)
	w.must(err)
	w.t.Logf("the figures:\n%v", v.Figures)
	if err := v.Err(); err != nil {
		w.t.Error(err)
	}
	return v
}

// begin has three replicas of stable lead everything, and starts the work.
func (w *world) begin() {
	w.t.Helper()
	ctx := w.t.Context()
	w.must(w.Install(ctx, rollout.Release{Revision: "stable", Replicas: 3}))
	w.must(w.Flip(ctx, "stable"))
	w.must(w.AwaitLeads(ctx, "stable"))
	w.must(w.Work(ctx))
}

// leavesNoTraces uninstalls what is left, and looks for what stays.
func (w *world) leavesNoTraces(revision string) {
	w.t.Helper()
	_, err := w.Helm(w.t.Context(), "uninstall", "tags")
	w.must(err)
	w.must(w.Uninstall(w.t.Context(), revision))
	left, err := w.Traces(w.t.Context())
	w.must(err)
	if len(left) > 0 {
		w.t.Errorf("it leaves behind %q", left)
	}
}
