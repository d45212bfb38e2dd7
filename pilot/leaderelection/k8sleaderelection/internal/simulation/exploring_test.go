package simulation

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// exploreDepth adds to the depth that an ordinary test run explores: SIM_DEPTH=4, as
// `make sim` has it.
const exploreDepth = "SIM_DEPTH"

func (e exploration) run(t *testing.T) *explorer {
	t.Helper()
	if e.step == nil {
		e.step = each(core.Config.Step)
	}
	began := time.Now()
	x := &explorer{exploration: e, t: t}
	x.explore()
	t.Logf("%d candidates, depth %d, %d delays, %d losses, %d mishaps, %d deletions, %d flips: %d states, somebody acts in %d transitions, %v; new by depth %v",
		e.candidates, e.depth, e.delays, e.losses, e.mishaps, e.deletions, e.flips, x.states, x.acting, time.Since(began).Round(time.Millisecond), x.levels)
	return x
}

// TestExplore visits every state of small elections up to a depth: never two who act, never a
// lock given up while somebody does, tokens that grow.
func TestExplore(t *testing.T) {
	more, _ := number(t, exploreDepth, 0)
	for name, e := range explorations() {
		t.Run(name, func(t *testing.T) {
			e.depth += int(more)
			x := e.run(t)
			if x.wrong != "" {
				t.Errorf("%s, after", x.wrong)
				for _, line := range x.trace {
					t.Log(line)
				}
			}
			if x.acting == 0 {
				t.Error("nobody ever acts: this shows nothing")
			}
		})
	}
}

func explorations() map[string]exploration {
	return map[string]exploration{
		"two, crashes and losses":   {candidates: 2, depth: 8, losses: 1, mishaps: 1},
		"two, late answers":         {candidates: 2, depth: 9, delays: 2},
		"two ranked, one flip":      {candidates: 2, depth: 9, ranked: true, flips: 1},
		"two, the lock is deleted":  {candidates: 2, depth: 10, deletions: 1},
		"three, nothing goes wrong": {candidates: 3, depth: 9},
	}
}

// TestExploreFindsPlantedBugs: what is visited would not show much if it could not fail.
func TestExploreFindsPlantedBugs(t *testing.T) {
	for name, e := range map[string]exploration{
		"conflict-taken-for-success": {candidates: 2, depth: 9, step: each(staleAcquire)},
		"release-before-drain":       {candidates: 2, depth: 8, mishaps: 1, step: each(releaseBeforeDrain)},
		"unknown-adopted":            {candidates: 2, depth: 8, losses: 1, step: each(unknownAdopted)},
		"lease-not-waited-for":       {candidates: 2, depth: 9, step: each(leaseShiftedBy(func(c core.Config, _ core.State, _ core.Input) time.Duration { return c.Lease }))},
		"token-of-before":            {candidates: 2, depth: 10, mishaps: 1, step: oldToken},
	} {
		t.Run(name, func(t *testing.T) {
			x := e.run(t)
			if x.wrong == "" {
				t.Errorf("not found")
			}
			t.Logf("%s, after %d steps", x.wrong, len(x.trace))
		})
	}
}

// staleAcquire takes a conflict for success: it acts on a write that was never stored.
func staleAcquire(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Replied && in.Result == core.Conflict && s.Flight.Op == core.Acquire {
		in.Result = core.Unknown
	}
	return unknownAdopted(c, s, in)
}
