package leaderelection

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

// bug is a planted bug.
type bug struct {
	client     func(*process, coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter
	ungated    bool // the work's writes pass no gate
	leavesWork bool // functions return before their work has ended
	token      bool // the token stays the same
	deaf       bool // the watchers miss each change of the default revision
	// wavers is the interval at which each watcher changes its default revision.
	wavers time.Duration
}

// playedSeeds is how many runs an ordinary test plays.
const playedSeeds = 400

// The promises hold under random faults. A seed determines the faults, but not the order of goroutines.
func TestRandomElections(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's candidates would bury a failure
	defer klog.ClearLogger()
	first, n := numberFrom(t, os.Getenv, "PLAY_FIRST", 0), numberFrom(t, os.Getenv, "SIM_SEEDS", playedSeeds)
	var failed []string
	var terms, orders, most int
	for seed := first; seed < first+n && len(failed) < 5; seed++ {
		p := playElection(t, uint64(seed), bug{})
		terms, orders, most = terms+p.terms, orders+p.orders, max(most, p.most)
		if len(p.violations) > 0 {
			failed = append(failed, fmt.Sprintf("seed %d: %s", seed, strings.Join(p.violations, "; ")))
			t.Logf("%s:\n%s", failed[len(failed)-1], p.log) // the seed alone does not bring it back
		}
	}
	t.Logf("%d seeds, %d terms, %d orders, at most %d requests about an object in %v", n, terms, orders, most, budgetSpan)
	for _, violations := range failed {
		t.Error(violations) // at the end of the log
	}
}
