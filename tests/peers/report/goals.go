package report

import (
	"fmt"
	"slices"
	"strings"
)

// Timings as the tables name them.
const (
	IstioTiming      = "30/15/7.5"
	KubernetesTiming = "15/10/2"
)

// Parts of the scenario crash.
const (
	Refused   = "refused"
	Swallowed = "swallowed"
)

// Goal is a number that the project wants to reach.
type Goal struct {
	What     string
	Value    string // what was measured
	Reached  bool
	Measured bool // false: the run has not what it takes
}

// Goals judges the results.
func (r *Results) Goals() []Goal {
	return slices.Concat(r.gracefulGoals(), r.stealGoals(), r.crashGoals(), r.requestGoals(), r.scaleGoals())
}

// GoalTable is Goals in Markdown.
func (r *Results) GoalTable() string {
	g := newGrid(3, "goal", "measured", "reached")
	for _, goal := range r.Goals() {
		reached := map[bool]string{true: "yes", false: "**no**"}[goal.Reached]
		if !goal.Measured {
			goal.Value, reached = "–", "not measured"
		}
		g.row(goal.What, goal.Value, reached)
	}
	return g.String()
}

// row finds a library's spread in a scenario. Where there are several it is the first,
// which is the kind of lock or load that a library's users have by default.
func (r *Results) row(scenario, part, library, timing string) Spread {
	s := r.find(scenario, func(x Series) bool {
		return x.Library == library && x.Timing == timing && x.Part == part && len(x.Millis) > 0
	})
	if s == nil {
		return Spread{}
	}
	return SpreadOf(s.Millis)
}

// atLeast and atMost judge how many times a is b.
func atLeast(what string, a, b, factor float64) Goal {
	return Goal{What: what, Value: ratio(a, b), Reached: a >= factor*b, Measured: a > 0 && b > 0}
}

func atMost(what string, a, b, factor float64) Goal {
	return Goal{What: what, Value: ratio(a, b), Reached: a <= factor*b, Measured: a > 0 && b > 0}
}

func (r *Results) gracefulGoals() []Goal {
	ours, istio := r.row(Graceful, "", Ours, IstioTiming), r.row(Graceful, "", Istio, IstioTiming)
	ours15, goes := r.row(Graceful, "", Ours, KubernetesTiming), r.row(Graceful, "", ClientGo, KubernetesTiming)
	limit := r.row(Graceful, "", Limit, "")
	return []Goal{
		atLeast("graceful handover, median: Istio ≥ 100× ours", istio.Median, ours.Median, 100),
		atLeast("graceful handover, median: client-go at 15/10/2 ≥ 50× ours", goes.Median, ours15.Median, 50),
		atLeast("graceful handover, p99: Istio ≥ 50× ours", istio.P99, ours.P99, 50),
		atLeast("graceful handover, p99: client-go at 15/10/2 ≥ 50× ours", goes.P99, ours15.P99, 50),
		atMost("graceful handover, median: ours ≤ 3× the limit of two writes and an event", ours.Median, limit.Median, 3),
	}
}

func (r *Results) stealGoals() []Goal {
	ours, istio := r.row(Steal, "", Ours, IstioTiming), r.row(Steal, "", Istio, IstioTiming)
	return []Goal{
		// The first rows of both have as many elections move at once.
		atLeast("default revision moves, median: Istio ≥ 50× ours", istio.Median, ours.Median, 50),
		r.noOverlap("default revision moves: two of ours never at once", Steal, ""),
		r.peersOverlap(),
	}
}

// peersOverlap is what ours is held against: Istio's leader works on beside the new one.
func (r *Results) peersOverlap() Goal {
	goal := Goal{What: "default revision moves: two of Istio's at once, for comparison (15 s and more)"}
	s := r.find(Steal, func(x Series) bool {
		return x.Library == Istio && !strings.HasPrefix(x.Case, TakingOver) && len(x.Overlap) > 0
	})
	if s == nil {
		return goal
	}
	spread := SpreadOf(s.Overlap)
	goal.Value, goal.Measured = fmt.Sprintf("median %s, longest %s", millis(spread.Median), millis(spread.Max)), true
	goal.Reached = spread.Max >= 15000
	return goal
}

// noOverlap looks at every row of ours alone.
func (r *Results) noOverlap(what, scenario, part string) Goal {
	goal := Goal{What: what, Reached: true}
	s := r.Scenarios[scenario]
	if s == nil {
		return goal
	}
	rounds, longest := 0, 0.0
	for _, x := range s.Series {
		if x.Library != Ours || x.Part != part || len(x.Overlap) == 0 || strings.HasPrefix(x.Case, TakingOver) {
			continue
		}
		goal.Measured = true
		rounds += len(x.Overlap)
		longest = max(longest, slices.Max(x.Overlap))
	}
	goal.Reached = longest == 0
	goal.Value = fmt.Sprintf("longest %s in %d rounds", millis(longest), rounds)
	return goal
}

func (r *Results) crashGoals() []Goal {
	var goals []Goal
	for _, part := range []string{Refused, Swallowed} {
		at := func(library, timing string) float64 { return r.row(Crash, part, library, timing).P99 }
		goals = append(goals,
			atMost("crash, "+part+", p99: ours ≤ 0.6× Istio", at(Ours, IstioTiming), at(Istio, IstioTiming), 0.6),
			atMost("crash, "+part+", p99: ours ≤ 0.6× client-go at 30/15/7.5", at(Ours, IstioTiming), at(ClientGo, IstioTiming), 0.6),
			atMost("crash, "+part+", p99: ours ≤ 0.75× client-go at 15/10/2", at(Ours, KubernetesTiming), at(ClientGo, KubernetesTiming), 0.75),
			r.noOverlap("crash, "+part+": two of ours never at once", Crash, part))
	}
	return goals
}

// edge is for the edges of a window of time: it holds whole renewals only, one more or less.
const edge = 1.01

func (r *Results) requestGoals() []Goal {
	s := r.Scenarios[Requests]
	if s == nil {
		s = &Scenario{}
	}
	all := s.whole(Ours, IstioTiming)
	goals := []Goal{{
		What: "requests per minute and election, 3 replicas at 30/15/7.5: ours ≤ 8", Value: digits(all),
		Reached: all <= 8*edge, Measured: all > 0,
	}}
	for _, peer := range []struct{ library, timing string }{{Istio, IstioTiming}, {ClientGo, IstioTiming}, {ClientGo, KubernetesTiming}} {
		ours, theirs := s.cpu(Ours, peer.timing, Follower), s.cpu(peer.library, peer.timing, Follower)
		goals = append(goals, Goal{
			What:  fmt.Sprintf("CPU of an idle follower: ours below %s's at %s", peer.library, peer.timing),
			Value: ratio(ours, theirs), Reached: ours < theirs, Measured: ours > 0 && theirs > 0,
		})
	}
	return goals
}

// Of 1,000 elections in one process.
const (
	goalKiB        = 16
	goalGoroutines = 3
	goalElections  = 1000
	// A write per RetryPeriod of 7.5 s and led election.
	goalPerSecond = goalElections / 7.5 * edge
)

func (r *Results) scaleGoals() []Goal {
	s := r.Scenarios[Scale]
	if s == nil {
		s = &Scenario{}
	}
	var goals []Goal
	for _, role := range []string{Leader, Follower} {
		x := s.size(Ours, role, goalElections)
		if x == nil {
			goals = append(goals, Goal{What: fmt.Sprintf("1,000 elections as %s: ≤ 16 KiB and ≤ 3 goroutines each", role)})
			continue
		}
		goals = append(goals,
			Goal{
				What: fmt.Sprintf("1,000 elections as %s: heap + stacks ≤ %d KiB each", role, goalKiB), Value: kib(x.memory()),
				Reached: x.memory() <= goalKiB, Measured: true,
			},
			Goal{
				What: fmt.Sprintf("1,000 elections as %s: ≤ %d goroutines each", role, goalGoroutines), Value: digits(x.Goroutines),
				// The run function of a leader is one of them.
				Reached: x.Goroutines <= goalGoroutines+0.05, Measured: true,
			},
			Goal{
				What:  fmt.Sprintf("1,000 elections as %s: requests/s ≤ one write per period and led election", role),
				Value: digits(x.PerSecond), Reached: x.PerSecond <= goalPerSecond, Measured: true,
			})
	}
	return goals
}
