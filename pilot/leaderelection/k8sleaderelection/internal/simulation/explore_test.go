package simulation

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// small are the worlds of explorations. TestExplore plays two faults in the first ones.
var small = []struct {
	name string
	Bounds
}{
	{"two equal processes", Bounds{Keys: []string{"stable", "stable"}, Settled: true}},
	{"two revisions", Bounds{Keys: []string{"stable", "canary"}, Settled: true}},
	{"two revisions with witnesses", Bounds{Keys: []string{"stable", "canary"}, Witness: true, Settled: true}},
	{"three equal processes", Bounds{Keys: []string{"stable", "stable", "stable"}, Settled: true}},
	{"three processes of two revisions", Bounds{Keys: []string{"stable", "canary", "canary"}, Settled: true}},
	{"a process and an istiod", Bounds{Keys: []string{"stable", "canary"}, Peer: true, Settled: true}},
	{"two processes and an istiod", Bounds{Keys: []string{"stable", "canary", "canary"}, Peer: true, Settled: true}},
	{"two revisions with a coordinator", Bounds{Keys: []string{"stable", "canary"}, Coordinated: true, Settled: true}},
	{"two revisions without their coordinator", Bounds{Keys: []string{"stable", "canary"}, Coordinated: true, Removed: true, Settled: true}},
	{"a process with a coordinator, one without", Bounds{Keys: []string{"stable", "stable"}, Coordinated: true, Mixed: true, Settled: true}},
	{"three processes with a coordinator", Bounds{Keys: []string{"stable", "canary", "canary"}, Coordinated: true, Settled: true}},
	{"two processes with a second lock", Bounds{Keys: []string{"stable", "canary"}, Held: 2, Settled: true}},
	{"a process with a second lock and an older one", Bounds{Keys: []string{"stable", "canary"}, Held: 1, Settled: true}},
	{"a process with a second lock and a newer one", Bounds{Keys: []string{"stable", "canary"}, Held: 1, New: true, Settled: true}},
	{"two equal processes that start", Bounds{Keys: []string{"stable", "stable"}}},
	{"two revisions that start", Bounds{Keys: []string{"stable", "canary"}}},
}

// defaultStates is the largest number of states of an exploration in TestExplore without EXPLORE_STATES.
const defaultStates = 2000

// explore explores on all CPUs. An exploration that is not finished in an hour is not reported as a result.
func explore(t *testing.T, b Bounds) Explored {
	if b.Limit = time.Hour; b.Calm == 0 {
		b.Calm = 100
	}
	r := Explore(b, runtime.GOMAXPROCS(0))
	if r.Unfinished {
		t.Errorf("with %v: not finished", b.Faults)
	}
	return r
}

// TestExplore plays every schedule of small worlds with each number of faults, as far as the number of states allows. So the result
// does not depend on the speed of the machine.
func TestExplore(t *testing.T) {
	states, _ := number(t, "EXPLORE_STATES", defaultStates)
	for faults := range 3 {
		for i, w := range small {
			if faults == 2 && i >= 2 {
				break
			}
			exhausted, all := 0, uint64(0)
			sets := w.together(faults)
			for _, kinds := range sets {
				b := w.Bounds
				b.Faults, b.States = kinds, states
				r := explore(t, b)
				all += r.States
				if r.Exhausted {
					exhausted++
				}
				t.Logf("%s, %v: %v", w.name, kinds, r)
				if r.Schedule != "" {
					t.Errorf("%s, %v: %v\n%s", w.name, kinds, r, r.Schedule)
				}
			}
			t.Logf("| %s | %d | %d of %d | %d |", w.name, faults, exhausted, len(sets), all)
		}
	}
}

// together returns the sets of kinds that schedules with this number of faults have.
func (b *Bounds) together(faults int) [][]string {
	sets := [][]string{{}}
	for range faults {
		var longer [][]string
		for _, set := range sets {
			for _, kind := range b.FaultKinds() {
				if len(set) == 0 || set[len(set)-1] <= kind {
					longer = append(longer, append(slices.Clip(set), kind))
				}
			}
		}
		sets = longer
	}
	return sets
}

// TestExplore_EqualFutures shows that states with equal fingerprints have equal futures, so that the first one represents all of
// them.
func TestExplore_EqualFutures(t *testing.T) {
	for _, w := range small {
		for _, kind := range w.FaultKinds() {
			b := w.Bounds
			b.Faults = []string{kind}
			compareFutures(t, w.name+", "+kind, &b, 300)
		}
	}
}

// compareFutures compares the fingerprints of all states that follow on states with equal fingerprints.
func compareFutures(t *testing.T, name string, b *Bounds, most int) {
	f := fingerprinter{orders: b.orders()}
	type seen struct {
		w    *world
		next []uint64
	}
	known := map[uint64]seen{}
	for queue := []*world{b.first(nil)}; len(queue) > 0 && len(known) < most; {
		w := queue[0]
		queue = queue[1:]
		var next []uint64
		var worlds []*world
		for _, c := range w.choices() {
			after := w.clone()
			after.choose(c)
			next = append(next, f.fingerprint(after)+uint64(len(after.judge(false))))
			worlds = append(worlds, after)
		}
		slices.Sort(next)
		next = slices.Compact(next)
		h := f.fingerprint(w)
		if first, is := known[h]; !is {
			known[h] = seen{w, next}
			queue = append(queue, worlds...)
		} else if !slices.Equal(first.next, next) {
			x := exploration{Bounds: *b}
			t.Fatalf("%s: two states with one fingerprint have different futures:\n%s\n\n%s", name, x.replay(first.w.choosing.path, false), x.replay(w.choosing.path, false))
		}
	}
}

// TestExplore_Reduced shows that an exploration without the orders that reduce leaves out reaches the same worlds in which time passes
// and the same violations, also with planted bugs.
func TestExplore_Reduced(t *testing.T) {
	for _, w := range slices.Concat(small[:2], small[7:8], small[12:13]) {
		for _, kind := range w.FaultKinds() {
			b := w.Bounds
			b.Faults = []string{kind}
			compareReduced(t, w.name+", "+kind, &b)
		}
		for _, bug := range AllBugs() {
			b := w.Bounds
			b.Bug, b.Faults = &bug, []string{"lose answer"}
			if mode, _ := ModeNamed(bug.Mode); mode.Coordinated != b.Coordinated || (mode.Held > 0) != (b.Held > 0) {
				continue
			}
			compareReduced(t, w.name+", "+bug.Name, &b)
		}
	}
}

func compareReduced(t *testing.T, name string, b *Bounds) {
	const most = 10000
	all, found, states := reach(b, true, most)
	if states == most {
		return
	}
	reduced, foundReduced, fewer := reach(b, false, most)
	if !maps.Equal(all, reduced) || !maps.Equal(found, foundReduced) {
		t.Errorf("%s: %d worlds in which time passes of %d, reduced %d of %d\nviolations %v, reduced %v",
			name, len(all), states, len(reduced), fewer, found, foundReduced)
	}
}

// reach returns the fingerprints of the worlds in which time passes, the violated checks, and the number of states.
func reach(b *Bounds, whole bool, most int) (rests map[uint64]bool, found map[Check]bool, states int) {
	f := fingerprinter{orders: b.orders()}
	known := map[uint64]bool{}
	rests, found = map[uint64]bool{}, map[Check]bool{}
	for stack := []*world{b.first(nil)}; len(stack) > 0 && len(known) < most; {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		h := f.fingerprint(w)
		if known[h] {
			continue
		}
		known[h] = true
		list := w.choices()
		if list[len(list)-1].move < 0 {
			rests[h] = true
		}
		if !whole {
			list = w.reduce(list, f.best)
		}
		for _, c := range list {
			next := w.clone()
			next.choose(c)
			for _, v := range next.judge(false) {
				found[v.Check] = true
			}
			stack = append(stack, next)
		}
	}
	return rests, found, len(known)
}

// TestExplore_SameStates shows that the number of states does not depend on the order of the search.
func TestExplore_SameStates(t *testing.T) {
	b := Bounds{Keys: []string{"stable", "stable"}, Faults: []string{"lose answer", "late answer"}, States: 1 << 20}
	one, two := Explore(b, 1), Explore(b, 2)
	if !one.Exhausted || !two.Exhausted || one.States != two.States || one.Transitions != two.Transitions {
		t.Errorf("two explorations differ:\n%v\n%v", one, two)
	}
}

// Reasons why explorations exclude a bug.
const (
	many   = "more than two faults"
	later  = "the calm continuation waits longer"
	forged = "other annotations"
)

// unexplored are the modes and bugs that the bounds of explorations exclude.
var unexplored = map[string]string{
	"namesake": "a peer that restarts as another elector", "client-go": "client-go peers",
	"slow": "slow answers", "slow-dead": "slow answers", "slow-bad": "slow answers", "herd": "many candidates",
	"strangers": "records with other leases", "external": "KeyComparisonFunc", "duplicates": "two processes of one name", "barred": "rejected writes", "lagging": "late watches",
	"double-lease": later, "nomination-needs-poll": later, "no-back-off": "calls within a second", "operator-refused": "checked by time",
	"release-while-settling": many, "own-name-without-marker": many, "stops-retrying": many, "no-answer-while-draining": many,
	"preempts-back": many, "forgets-stored-stamp": many, "renewal-needs-read": many, "witness-releases-settling": many,
	"accepts-expired-request": "a leader without the default", "request-to-other-term": forged, "nomination-without-record": forged,
	"cool-down-without-bound": forged, "herd-never-forgets": "turns", "unbounded-retry-after": "no Retry-After", "no-sync-wait": "no SyncWait",
	"witness-of-live-process": "connections to a witness", "witness-releases-twice": "one witness",
	"held-settling-acts":   "not found with one fault",
	"token-of-former-term": "state outside of the world", "lost-term-resumed": "state outside of the world",
}

// needs has the faults that show a bug. Other bugs are found without faults or with the first kinds.
var needs = map[string][]string{
	"leads-after-unknown-handover": {"flip", "unknown answer"}, "hold-ignored": {"operator", "flip"}, "witness-ignores-uid": {"kill", "delete"},
	"settling-removes-marker": {"flip", "stop"}, "held-drained-early": {"stop"}, "poll-shows-everything": {"kill", "coordinator"}, "named-without-settling": {"coordinator", "unknown answer"},
	"former-marker-ignored": {"flip", "stop"}, "held-never-starts": {"pause"},
}

// TestExplore_PlantedBugs shows that explorations find violations. Without EXPLORE_STATES, it explores with the first bugs only.
func TestExplore_PlantedBugs(t *testing.T) {
	_, all := number(t, "EXPLORE_STATES", 0)
	for i, bug := range AllBugs() {
		if i == 7 && !all {
			break
		}
		why := unexplored[bug.Mode] + unexplored[bug.Name]
		if !counted(bug.Check, true) {
			why = "counts over time"
		}
		if why != "" {
			t.Logf("| %s | excluded: %s |", bug.Name, why)
			continue
		}
		findBug(t, boundsOf(&bug))
	}
}

// boundsOf returns the small world that is like the mode of a bug.
func boundsOf(bug *Bug) Bounds {
	mode, _ := ModeNamed(bug.Mode)
	b := Bounds{Keys: []string{"stable", "stable"}, Witness: mode.Witness > 0, Bug: bug, Calm: 50}
	if mode.Ranked {
		b.Keys[1] = "canary"
	}
	if mode.Held > 0 {
		b.Held = 1
	}
	b.Coordinated, b.Removed, b.Mixed = mode.Coordinated, mode.Removed, mode.Uncoordinated > 0
	if b.Peer = mode.Peers > 0; b.Peer {
		b.Keys = []string{"stable", "stable", "canary"}
	}
	return b
}

// bugStates is the largest number of states in which each planted bug must be found.
const bugStates = 1_500_000

// findBug explores with the faults that the bug needs, then with each kind of fault.
func findBug(t *testing.T, b Bounds) {
	b.States = bugStates
	took := time.Duration(0)
	for _, b.Settled = range []bool{true, false} {
		for _, b.Faults = range append([][]string{needs[b.Bug.Name]}, b.together(1)...) {
			r := explore(t, b)
			took += r.Took
			if r.Schedule != "" {
				t.Logf("| %s | %s, with %v | %d states, %v, %d steps |",
					b.Bug.Name, r.Violations[0].Check, b.Faults, bugStates-b.States+r.States, took, strings.Count(r.Schedule, "\n"))
				return
			}
			if b.States -= r.States; b.States == 0 {
				break
			}
		}
	}
	t.Errorf("%s: not found", b.Bug.Name)
}
