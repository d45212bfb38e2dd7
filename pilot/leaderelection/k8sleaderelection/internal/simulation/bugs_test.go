package simulation

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// bugSeeds is within how many seeds each planted bug has to be caught.
const bugSeeds = 5000

// shownAt are seeds at which bugs show that do so seldom: an ordinary run begins there, one of make sim with the first.
var shownAt = map[string]uint64{
	"own-name-without-marker": 1500, "denial-is-conflict": 1200, "former-marker-ignored": 900, "no-answer-while-draining": 600,
	"late-events-delay-poll": 450, "release-while-settling": 400, "waits-for-absent-coordinator": 290, "poll-shows-everything": 290,
}

// TestPlantedBugs shows that each check can fail: the bug that belongs to it is
// caught by it, in the mode where it shows.
func TestPlantedBugs(t *testing.T) {
	if name := os.Getenv("SIM_BUG"); name != "" {
		replayBug(t, name)
		return
	}
	proven := map[Check]bool{}
	for _, bug := range AllBugs() {
		mode, ok := ModeNamed(bug.Mode)
		if !ok {
			t.Fatalf("%s: there is no mode %q", bug.Name, bug.Mode)
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
			t.Errorf("%s, in mode %s: not caught by %s within %d seeds; by others: %v", bug.Name, bug.Mode, bug.Check, played, sorted(first))
			continue
		}
		proven[bug.Check] = true
		t.Logf("%-24s %-12s caught by %-14s seed %4d; until then also %v", bug.Name, bug.Mode, bug.Check, seed, sorted(first, bug.Check))
	}
	for _, check := range allChecks {
		if !proven[check] {
			t.Errorf("no planted bug is caught by %s: nothing shows that it can fail", check)
		}
	}
}

// sorted lists checks and the first seed that each failed at.
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
		t.Fatalf("SIM_BUG=%s: there is no such bug", name)
	}
	mode, _ := ModeNamed(bug.Mode)
	seed, _ := number(t, "SIM_SEED", 0)
	t.Log(Run(Options{Seed: seed, Mode: &mode, Bug: &bug, Trace: os.Stdout}))
}
