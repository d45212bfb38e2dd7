package simulation

import (
	"fmt"
	"maps"
	"math"
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
	Settled bool     // a leader exists at the beginning; otherwise all processes start
	Faults  int      // number of faults in a schedule
	Kinds   []string // possible faults; if empty, all
	Bug     *Bug     // optional
	Whole   bool     // without the reduction of reduce.go
	// Calm is the share of states from which the calm continuation is played: one of this number, and the first ones. 0: none.
	Calm uint64
	// Limit ends the exploration early. 0: none.
	Limit time.Duration
	// States is the largest number of states, a power of two.
	States int
}

// FaultKinds returns the names of all faults.
func FaultKinds() []string {
	var names []string
	for _, m := range moves {
		if m.when == fault {
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
	Violations                 []Violation
	Schedule                   string // that leads to the violations
}

// Collision returns the probability that two different states had one fingerprint.
func (e Explored) Collision() float64 { return float64(e.States) * float64(e.States) / math.Pow(2, 65) }

func (e Explored) String() string {
	end := "exhausted"
	if !e.Exhausted {
		end = "NOT EXHAUSTED"
	}
	text := fmt.Sprintf("%s, %d states, %d transitions, %d calm continuations, depth %d, %v of the election, in %v, collision %.0e",
		end, e.States, e.Transitions, e.Calms, e.Depth, e.Longest, e.Took.Round(time.Millisecond), e.Collision())
	for _, v := range e.Violations {
		text += fmt.Sprintf("\n  at %v, %s: %s", v.At, v.Check, v.Detail)
	}
	return text
}

func (b *Bounds) allows(fault string) bool {
	return len(b.Kinds) == 0 || slices.Contains(b.Kinds, fault)
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
	named := b.Faults > 0 && b.allows("forge")
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
	return b.Keys[n] == b.Keys[m] && (!b.Peer || n != last && m != last || n == m)
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
	w := &world{Options: Options{Bug: b.Bug}, rng: noRandom, mode: m, timing: smallTiming, forgery: forgeries}
	w.choosing = choosing{on: true, bounds: b, recorded: recorded}
	w.now = began
	w.calm, w.rest, w.end = math.MaxInt64, math.MaxInt64, math.MaxInt64
	w.store.w, w.checks.w = w, w
	if m.Ranked {
		w.defaultRevision = core.DefaultRevision{Synced: true, Revision: b.Keys[0]}
	}
	for i, key := range b.Keys {
		n := w.newNode()
		if b.Peer && i == len(b.Keys)-1 {
			n.kind = istiod
		}
		n.key, n.witnessed = key, b.Witness
		n.clocks = &clocks{rate: 1, monoZero: int64(time.Hour), bootZero: int64(2 * time.Hour), hasBoot: true, asleepAt: -1, wallZero: 1_780_000_000e9}
		n.start()
	}
	for b.Settled && w.now < began.add(4*w.timing.lease) {
		w.choose(w.choices()[0])
	}
	w.choosing.left, w.choosing.path = b.Faults, nil
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
	cut     atomic.Bool // a bound ended the search
	pending atomic.Int64
	mu      sync.Mutex
	result  Explored
}

// Explore plays every schedule within the bounds.
func Explore(b Bounds, workers int) Explored {
	x := &exploration{Bounds: b, order: b.orders(), pool: make(chan *world, 64), table: make([]atomic.Uint64, b.States)}
	start := time.Now() //nolint:forbidigo // only measured
	if b.Limit > 0 {
		timer := time.AfterFunc(b.Limit, func() { x.end(true) })
		defer timer.Stop()
	}
	x.give(x.first(nil))
	var all sync.WaitGroup
	for range workers {
		all.Go(x.work)
	}
	all.Wait()
	x.result.Took = time.Since(start) //nolint:forbidigo // only measured
	x.result.Exhausted = !x.cut.Load() && len(x.result.Violations) == 0
	return x.result
}

func (x *exploration) end(cut bool) {
	if cut {
		x.cut.Store(true)
	}
	x.over.Store(true)
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
	r.States, r.Transitions, r.Calms = r.States+s.states, r.Transitions+s.transitions, r.Calms+s.calms
	r.Depth, r.Longest = max(r.Depth, s.depth), max(r.Longest, s.longest)
}

// searcher is a depth-first search.
type searcher struct {
	x                          *exploration
	f                          fingerprinter
	stack                      []branch
	states, transitions, calms uint64
	depth                      int
	longest                    time.Duration
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
	s.states++
	s.longest = max(s.longest, w.now.since(began))
	if s.x.Calm > 0 && (s.states <= calmStates || h%s.x.Calm == 0) {
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

// visit records a fingerprint. It returns false if it was known, or if the table is full.
func (x *exploration) visit(h uint64) bool {
	mask := uint64(len(x.table) - 1)
	for i := range uint64(1000) {
		entry := &x.table[(h+i)&mask]
		if old := entry.Load(); old == h || old == 0 && !entry.CompareAndSwap(0, h) && entry.Load() == h {
			return false
		} else if old == 0 && entry.Load() == h {
			return true
		}
	}
	x.end(true)
	return false
}

// found records the first violations.
func (x *exploration) found(w *world, v []Violation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.result.Violations) == 0 {
		x.result.Violations = v
		x.result.Schedule = x.replay(w.choosing.path, !w.choosing.on)
	}
	x.end(false)
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
