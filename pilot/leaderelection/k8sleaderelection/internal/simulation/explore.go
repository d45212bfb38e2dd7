package simulation

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Bounds select a small world and the schedules of an exploration.
type Bounds struct {
	Keys    []string // revisions of the processes; the first is the default, if they differ
	Witness bool     // each node has a witness
	Peer    bool     // the last process is an istiod
	Held    int      // number of processes with a second lock inside the first one; the others use only one lock
	New     bool     // that is the second one
	// Coordinated: a coordinator names the leader.
	Coordinated bool
	Removed     bool     // the coordinator is gone
	Mixed       bool     // the last process is not coordinated
	Settled     bool     // a leader exists at the beginning; otherwise all processes start
	Faults      []string // of a schedule, at most 8. Each is possible once
	Bug         *Bug     // optional
	Whole       bool     // without the reduction of reduce.go
	// Calm is the share of states from which the calm continuation is played: one of this number, and the first ones. 0: none.
	Calm uint64
	// States is the largest number of states. An exploration that reaches it is not exhausted.
	States uint64
	// Limit ends an exploration that takes longer, as not finished. 0: none.
	Limit time.Duration
}

// FaultKinds returns the names of the faults that are possible in the world.
func (b *Bounds) FaultKinds() []string {
	var names []string
	for _, m := range moves {
		if m.when == fault && !(b.Peer && (m.name == "edit" || m.name == "forge")) && !(b.Held > 0 && slices.Contains([]string{"forge", "operator"}, m.name)) && (b.Coordinated && !b.Removed || m.name != "coordinator") {
			names = append(names, m.name)
		}
	}
	return names
}

// Explored is the result of an exploration.
type Explored struct {
	States, Transitions, Calms uint64
	Depth                      int           // largest number of choices in a schedule that was not cut short by a known state
	Longest                    time.Duration // in the election
	Took                       time.Duration
	Exhausted                  bool // the results of all schedules within the bounds are known
	Unfinished                 bool // Limit ended the exploration
	Violations                 []Violation
	Schedule                   string // that leads to the violations
}

// Collision returns the probability that two different states had one fingerprint.
func (e Explored) Collision() float64 { return float64(e.States) * float64(e.States) / math.Pow(2, 65) }

func (e Explored) String() string {
	end := "exhausted"
	if e.Unfinished {
		end = "NOT FINISHED"
	} else if !e.Exhausted {
		end = "NOT EXHAUSTED"
	}
	text := fmt.Sprintf("%s, %d states, %d transitions, %d calm continuations, depth %d, %v of the election, in %v, collision %.0e",
		end, e.States, e.Transitions, e.Calms, e.Depth, e.Longest, e.Took.Round(time.Millisecond), e.Collision())
	for _, v := range e.Violations {
		text += fmt.Sprintf("\n  at %v, %s: %s", v.At, v.Check, v.Detail)
	}
	return text
}

// ranked reports whether the processes have different revisions.
func (b *Bounds) ranked() bool { return slices.Min(b.Keys) != slices.Max(b.Keys) }

// orders returns the orders of the nodes that exchange only equal ones, beginning with the given ones. The annotations of a stranger name
// certain nodes, so that no two are equal.
func (b *Bounds) orders(begin ...int) [][]int {
	if len(begin) == len(b.Keys) {
		return [][]int{begin}
	}
	var all [][]int
	named := slices.Contains(b.Faults, "forge")
	for n := range b.Keys {
		if b.equal(n, len(begin)) && !slices.Contains(begin, n) && (!named || n == len(begin)) {
			all = append(all, b.orders(append(slices.Clip(begin), n)...)...)
		}
	}
	return all
}

// equal reports whether two nodes are equal at the beginning.
func (b *Bounds) equal(n, m int) bool {
	last := len(b.Keys) - 1
	return n == m || !b.Coordinated && b.Keys[n] == b.Keys[m] && (n < b.Held) == (m < b.Held) && (!b.Peer || n != last && m != last)
}

// smallTiming has the durations of an exploration in ticks.
var smallTiming = timing{6 * tick, 3 * tick, tick, 0, 5 * tick}

// began is the time at the beginning. It is not 0, which means no time.
const began = Time(time.Hour)

// first returns the world at the beginning. Its mode has all faults, so that the checks expect no more than in such a mode.
func (b *Bounds) first(recorded scenarios) *world {
	m := Mode{Ranked: b.ranked(), Edits: 1, Pauses: 1, Stops: 1, Cuts: 1, Orders: 1, Unfits: 1, Forgers: 1, Net: 0.1, Drop: 0.1, Late: 0.1, Fail: 0.1, Lag: 0.1}
	if b.Peer {
		m.Peers = 1
	}
	if m.Coordinated = b.Coordinated; m.Coordinated {
		m.Silences, m.Removed = 1, b.Removed
	}
	if b.Mixed {
		m.Uncoordinated = 0.5
	}
	w := &world{Options: Options{Bug: b.Bug}, rng: noRandom, mode: m, timing: smallTiming, forgery: forgeries}
	w.choosing = choosing{on: true, bounds: b, recorded: recorded}
	w.now = began
	w.calm, w.rest, w.end = math.MaxInt64, math.MaxInt64, math.MaxInt64
	w.store.w, w.checks.w = w, w
	if m.Ranked {
		w.defaultRevision = core.DefaultRevision{Synced: true, Revision: b.Keys[0]}
	}
	if b.Settled {
		w.store.commit(view{snap: core.Snapshot{Exists: true, UID: uid(0), Record: core.Record{Transitions: 1}}, released: true})
	}
	if b.Held > 0 {
		w.inner = w.smallInner()
	}
	for i, key := range b.Keys {
		n := w.newNode()
		if b.Peer && i == len(b.Keys)-1 {
			n.kind = istiod
		}
		n.key, n.witnessed = key, b.Witness
		n.uncoordinated = b.Mixed && i == len(b.Keys)-1
		n.clocks = &clocks{rate: 1, monoZero: int64(time.Hour), bootZero: int64(2 * time.Hour), hasBoot: true, asleepAt: -1, wallZero: 1_780_000_000e9}
		if i < b.Held || b.New {
			n.useSecondLock(i >= b.Held)
		}
		n.start()
	}
	if b.Coordinated && !b.Removed {
		w.coordinators = []*coordinator{{w: w, clock: 1, due: w.now}}
	}
	for b.Settled && w.now < began.add(8*w.timing.lease) {
		w.choose(w.choices()[0])
	}
	w.choosing.left, w.choosing.path = 1<<len(b.Faults)-1, nil
	return w
}

// counted reports whether an exploration judges by the check. The others count calls and causes over time, which do not
// distinguish states.
func counted(c Check, calm bool) bool {
	switch c {
	case Effort, Reports, Changes:
		return false
	case Prompt, Quiet:
		return calm
	}
	return true
}

// judge returns the violations that count, and removes all.
func (w *world) judge(calm bool) []Violation {
	w.addInnerResult()
	all := slices.DeleteFunc(w.result.Violations, func(v Violation) bool { return !counted(v.Check, calm) })
	w.result.Violations = nil
	return all
}

// exploration is one run of Explore.
type exploration struct {
	Bounds
	order   [][]int // see orders
	table   []atomic.Uint64
	pool    chan *world // worlds for idle workers
	idle    atomic.Int32
	over    atomic.Bool
	late    atomic.Bool // Limit ended the search
	states  atomic.Uint64
	pending atomic.Int64
	mu      sync.Mutex
	result  Explored
}

// Explore plays every schedule within the bounds.
func Explore(b Bounds, workers int) Explored {
	x := &exploration{Bounds: b, order: b.orders(), pool: make(chan *world, 64), table: make([]atomic.Uint64, 1<<bits.Len64(b.States+b.States/2+64))}
	start := time.Now() //nolint:forbidigo // only measured
	if b.Limit > 0 {
		timer := time.AfterFunc(b.Limit, func() {
			x.late.Store(true)
			x.over.Store(true)
		})
		defer timer.Stop()
	}
	x.give(x.first(nil))
	var all sync.WaitGroup
	for range workers {
		all.Go(x.work)
	}
	all.Wait()
	x.result.Took = time.Since(start) //nolint:forbidigo // only measured
	x.result.States, x.result.Unfinished = min(x.states.Load(), x.Bounds.States), x.late.Load()
	x.result.Exhausted = !x.over.Load()
	return x.result
}

// give passes a world to an idle worker. It returns false if the pool is full.
func (x *exploration) give(w *world) bool {
	x.pending.Add(1)
	select {
	case x.pool <- w:
		return true
	default:
		x.pending.Add(-1)
		return false
	}
}

func (x *exploration) work() {
	s := searcher{x: x, f: fingerprinter{orders: x.order}}
	x.idle.Add(1)
	for !x.over.Load() && x.pending.Load() > 0 {
		select {
		case w := <-x.pool:
			x.idle.Add(-1)
			s.search(w)
			x.idle.Add(1)
			x.pending.Add(-1)
		case <-time.After(time.Millisecond):
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r := &x.result
	r.Transitions, r.Calms = r.Transitions+s.transitions, r.Calms+s.calms
	r.Depth, r.Longest = max(r.Depth, s.depth), max(r.Longest, s.longest)
}

// searcher is a depth-first search.
type searcher struct {
	x                  *exploration
	f                  fingerprinter
	stack              []branch
	transitions, calms uint64
	depth              int
	longest            time.Duration
}

// calmStates is the number of first states from which the calm continuation is played.
const calmStates = 20

// branch is a world with the choices that are left.
type branch struct {
	w    *world
	left []choice
}

func (s *searcher) search(w *world) {
	s.enter(w)
	for len(s.stack) > 0 && !s.x.over.Load() {
		top := &s.stack[len(s.stack)-1]
		n := len(top.left)
		if n == 0 {
			s.stack = s.stack[:len(s.stack)-1]
			continue
		}
		c := top.left[n-1]
		top.left = top.left[:n-1]
		next := top.w
		if n > 1 {
			next = next.clone()
		} else {
			s.stack = s.stack[:len(s.stack)-1]
		}
		s.transitions++
		next.choose(c)
		if v := next.judge(false); len(v) > 0 {
			s.x.found(next, v)
			return
		}
		if s.x.idle.Load() > 0 && s.x.give(next) {
			continue
		}
		s.enter(next)
	}
}

// enter adds a world to the stack unless it was visited.
func (s *searcher) enter(w *world) {
	h := s.f.fingerprint(w)
	if !s.x.visit(h) {
		return
	}
	s.longest = max(s.longest, w.now.since(began))
	if s.x.Calm > 0 && (s.calms < calmStates || h%s.x.Calm == 0) {
		s.calms++
		calm := w.clone()
		calm.continueCalmly()
		if v := calm.judge(true); len(v) > 0 {
			s.x.found(calm, v)
			return
		}
	}
	choices := w.choices()
	if !s.x.Whole {
		choices = w.reduce(choices, s.f.best)
	}
	s.stack = append(s.stack, branch{w, choices})
	s.depth = max(s.depth, len(s.stack))
}

// visit records a fingerprint. It returns false if it was known, or if there are too many.
func (x *exploration) visit(h uint64) bool {
	mask := uint64(len(x.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		old := x.table[i].Load()
		if old == 0 && x.table[i].CompareAndSwap(0, h) {
			break
		}
		if x.table[i].Load() == h {
			return false
		}
	}
	if x.states.Add(1) > x.Bounds.States {
		x.over.Store(true)
		return false
	}
	return true
}

// found records the first violations.
func (x *exploration) found(w *world, v []Violation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.result.Violations) == 0 {
		x.result.Violations = v
		x.result.Schedule = x.replay(w.choosing.path, !w.choosing.on)
	}
	x.over.Store(true)
}

// replay returns the trace of a schedule, and the scenario of each process.
func (x *exploration) replay(p *path, calm bool) string {
	var list []choice
	for ; p != nil; p = p.before {
		list = append(list, p.choice)
	}
	slices.Reverse(list)
	var trace strings.Builder
	recorded := scenarios{}
	w := x.first(recorded)
	w.Trace = &trace
	if w.inner != nil {
		w.inner.Trace = &trace
	}
	for _, c := range list {
		w.choose(c)
	}
	if calm {
		w.continueCalmly()
	}
	for _, id := range slices.Sorted(maps.Keys(recorded)) {
		trace.WriteString("\n" + recorded[id].text.String())
	}
	return trace.String()
}
