package simulation

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// bugSeeds is the number of seeds within which each planted bug must be found.
const bugSeeds = 5000

// shownAt has a first seed for bugs that rarely have an effect. With SIM_SEEDS, the test begins at 0 instead.
var shownAt = map[string]uint64{
	"own-name-without-marker": 1540, "former-marker-ignored": 910, "release-while-settling": 540, "waits-for-absent-coordinator": 1000,
}

// onlyExplored needs several turns of two loops in one moment. TestExplore_PlantedBugs finds it.
const onlyExplored = "held-never-starts"

// TestPlantedBugs shows that each check can fail. Each bug must be found by its check, in its mode.
func TestPlantedBugs(t *testing.T) {
	if name := os.Getenv("SIM_BUG"); name != "" {
		replayBug(t, name)
		return
	}
	proven := map[Check]bool{}
	for _, bug := range AllBugs() {
		if bug.Name == onlyExplored {
			continue
		}
		mode, ok := ModeNamed(bug.Mode)
		if !ok {
			t.Fatalf("%s: unknown mode %q", bug.Name, bug.Mode)
		}
		first := map[Check]uint64{}
		played := 0
		from := shownAt[bug.Name]
		if os.Getenv("SIM_SEEDS") != "" {
			from = 0
		}
		play(from, bugSeeds, &mode, &bug, func(r Result) bool {
			played++
			for _, v := range r.Violations {
				if old, seen := first[v.Check]; !seen || r.Seed < old {
					first[v.Check] = r.Seed
				}
			}
			_, caught := first[bug.Check]
			return !caught
		})
		seed, caught := first[bug.Check]
		if !caught {
			t.Errorf("%s in mode %s: not found by %s within %d seeds; found by: %v", bug.Name, bug.Mode, bug.Check, played, sorted(first))
			continue
		}
		proven[bug.Check] = true
		t.Logf("%-24s %-12s caught by %-14s seed %4d; until then also %v", bug.Name, bug.Mode, bug.Check, seed, sorted(first, bug.Check))
	}
	for _, check := range allChecks {
		if !proven[check] {
			t.Errorf("no planted bug is found by %s", check)
		}
	}
}

// sorted lists checks with the first seed at which each failed.
func sorted(first map[Check]uint64, without ...Check) []string {
	list := []string{}
	for check, seed := range first {
		if !slices.Contains(without, check) {
			list = append(list, fmt.Sprintf("%s (seed %d)", check, seed))
		}
	}
	slices.Sort(list)
	return list
}

// replayBug plays one seed with one bug and prints every step.
func replayBug(t *testing.T, name string) {
	bug, ok := BugNamed(name)
	if !ok {
		t.Fatalf("SIM_BUG=%s: unknown bug", name)
	}
	mode, _ := ModeNamed(bug.Mode)
	seed, _ := number(t, "SIM_SEED", 0)
	t.Log(Run(Options{Seed: seed, Mode: &mode, Bug: &bug, Trace: os.Stdout}))
}
