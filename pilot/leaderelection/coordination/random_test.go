package coordination

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// simSeeds is how many seeds an ordinary test run plays.
const simSeeds = 200

func simNumber(t *testing.T, variable string, otherwise uint64) (n uint64, given bool) {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: give a number", variable, text)
	}
	return n, true
}

// simBugSeeds is within how many seeds each planted bug has to be caught.
const simBugSeeds = 1000

func simPlay(seed uint64, bug simBug, trace io.Writer) *simWorld {
	return simRun(newSimWorld(seed, bug, trace))
}

// simPlayAll plays seeds from first on, on all CPUs, and hands each to got, one at a time, until that says that it is enough.
func simPlayAll(first, seeds uint64, bug simBug, got func(*simWorld) bool) {
	var next atomic.Uint64
	var enough atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !enough.Load() {
				nth := next.Add(1) - 1
				if nth >= seeds {
					return
				}
				w := simPlay(first+nth, bug, nil)
				mu.Lock()
				if !got(w) {
					enough.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// TestPlanAtRandom plays elections at random, by Observer.Plan: SIM_SEEDS=20000 plays more of them, SIM_SEED=17 that one
// again, and prints it.
func TestPlanAtRandom(t *testing.T) {
	if seed, one := simNumber(t, "SIM_SEED", 0); one {
		for _, v := range simPlay(seed, simBug{}, os.Stdout).checks.violations {
			t.Error(v)
		}
		return
	}
	seeds, _ := simNumber(t, "SIM_SEEDS", simSeeds)
	first, _ := simNumber(t, "SIM_FIRST", 0)
	began := time.Now()
	played, terms, broken, most := time.Duration(0), 0, map[simCheck]int{}, map[simCheck]int{}
	simPlayAll(first, seeds, simBug{}, func(w *simWorld) bool {
		played += w.now
		terms += w.checks.terms
		for check, n := range w.checks.most {
			most[check] = max(most[check], n)
		}
		for _, v := range w.checks.violations {
			if broken[v.check]++; broken[v.check] <= 3 {
				t.Errorf("seed %d: %v\n  replay: SIM_SEED=%d go test -count=1 -v -run TestPlanAtRandom ./pilot/leaderelection/coordination", w.seed, v, w.seed)
			}
		}
		return true
	})
	t.Logf("%d seeds from %d in %v: %v of elections, %d terms, at most %v; broken: %v", seeds, first, time.Since(began).Round(time.Millisecond), played.Round(time.Second), terms, most, broken)
}

// TestPlanAtRandomPlayedAgain: without that, no failing seed could be played again.
func TestPlanAtRandomPlayedAgain(t *testing.T) {
	for seed := range uint64(5) {
		var traces [2]strings.Builder
		for i := range traces {
			simPlay(seed, simBug{}, &traces[i])
		}
		if traces[0].Len() == 0 || traces[0].String() != traces[1].String() {
			t.Errorf("seed %d plays differently the second time", seed)
		}
	}
}

// TestPlanAtRandomPlantedBugs shows that each check can fail: SIM_BUG=nil-holder SIM_SEED=17 plays one seed with one bug, and prints it.
func TestPlanAtRandomPlantedBugs(t *testing.T) {
	proven := map[simCheck]bool{}
	for _, bug := range slices.Concat(simChoiceBugs, simEffortBugs) {
		if name := os.Getenv("SIM_BUG"); name != "" {
			if name == bug.name {
				seed, _ := simNumber(t, "SIM_SEED", 0)
				t.Log(simPlay(seed, bug, os.Stdout).checks.violations)
			}
			continue
		}
		played, others := 0, map[simCheck]int{}
		simPlayAll(0, simBugSeeds, bug, func(w *simWorld) bool {
			played++
			for _, v := range w.checks.violations {
				others[v.check]++
			}
			return others[bug.check] == 0
		})
		if others[bug.check] == 0 {
			t.Errorf("%s is not caught by %s within %d seeds; by others: %v", bug.name, bug.check, played, others)
			continue
		}
		proven[bug.check] = true
		t.Logf("%-24s caught by %-12s within %3d seeds: %v", bug.name, bug.check, played, others)
	}
	for _, check := range simAllChecks {
		if !proven[check] && os.Getenv("SIM_BUG") == "" {
			t.Errorf("no planted bug is caught by %s: nothing shows that it can fail", check)
		}
	}
}
