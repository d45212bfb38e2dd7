package simulation

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// delta is the bound on clock rates for the drain limit.
const delta = 0.02

// Options select one run.
type Options struct {
	Seed uint64
	// Mode has the possible faults. If nil, the seed selects it.
	Mode *Mode
	// Bug is planted. Optional.
	Bug *Bug
	// Trace receives a line for each step. Optional.
	Trace io.Writer
}

// Result is the summary of a run.
type Result struct {
	Seed       uint64
	Mode       string
	Steps      int
	Terms      int // number of starts of run functions
	Violations []Violation
}

type world struct {
	Options
	rng          *rand.Rand
	mode         Mode
	outer, inner *world // of the two locks: see held.go
	now          Time
	queue        queue
	store        store
	nodes        []*node
	procs        []*process // all incumbent processes, oldest first
	peers        int        // number of peers

	coordinators []*coordinator

	timing          timing
	calm, end       Time
	waited          bool // see postponed
	refusing        Time // when the calm began, a process was about to refuse requests of failed nominees until then
	rest            Time // end of the bound
	aborted         bool
	defaultRevision core.DefaultRevision
	apiDown         Time    // no node reaches the store before
	refuses         float64 // share of calls that an outage refuses instead of hanging
	syncWait        time.Duration
	slow            slowness
	loose           bool     // equal keys beat each other
	choosing        choosing // of an exploration
	forgery         int      // the only kind of annotation that is forged; a higher number: all kinds
	spells          []*spell
	checks          checks
	result          Result
}

type timing struct {
	lease, validity, retry time.Duration
	faults, quiet          time.Duration
}

var timings = []timing{
	{15 * time.Second, 10 * time.Second, 2 * time.Second, 150 * time.Second, 40 * time.Second},
	{30 * time.Second, 15 * time.Second, 7500 * time.Millisecond, 300 * time.Second, 75 * time.Second},
}

// bound returns the longest time until an election settles without faults: calls in flight end, the longest
// lease expires twice by a slow clock, and a higher rank preempts and settles.
func (t timing) bound() time.Duration {
	return 3*t.lease*105/100 + t.validity + 8*t.retry
}

// peerBound is added with peers, because they poll and need PeerGrace.
func (t timing) peerBound() time.Duration { return t.lease + t.grace() + 5*t.retry }

// idle returns the longest time without a leader if processes end: two leases, the second of a holder that was
// settling.
func (t timing) idle() time.Duration { return 2*t.lease*105/100 + 3*t.retry }

// idle returns the longest time without a leader and without a cause. The lease of another elector does not prolong it.
func (w *world) idle() time.Duration {
	if w.mode.OtherLeases > 0 {
		return w.timing.idle() + 2*w.timing.grace()
	}
	return w.timing.idle() + w.mode.uncoordinatedTime(w.timing)
}

// Run plays one seed.
func Run(o Options) Result {
	w := &world{Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0x696e63756d62))}
	w.mode = Modes[o.Seed%uint64(len(Modes))]
	if o.Mode != nil {
		w.mode = *o.Mode
	}
	w.result = Result{Seed: o.Seed, Mode: w.mode.Name}
	w.timing = timings[0]
	if w.rng.IntN(4) == 0 {
		w.timing = timings[1]
	}
	w.calm = Time(0).add(w.timing.faults)
	w.rest = w.calm.add(w.timing.bound())
	if w.mode.Refusals > 0 {
		w.rest = w.rest.add(w.timing.lease) // longest pause after failed writes
	}
	if w.mode.peers() {
		w.rest = w.rest.add(w.timing.peerBound())
	}
	if w.beSlow(); w.slow.steady {
		w.rest = w.rest.add(10 * w.slow.total())
	}
	w.end = w.rest.add(w.timing.quiet)
	w.store.w, w.checks.w = w, w
	w.checks.handovers.left, w.checks.nominations.left = handoverBudget, handoverBudget
	w.checks.herd.left = herdBurst
	if w.rng.IntN(3) > 0 {
		w.syncWait = 3 * time.Second
	}
	w.loose = w.mode.External && w.rng.IntN(3) == 0
	if w.forgery = 16; w.mode.Forgers > 0 {
		w.forgery = w.rng.IntN(16)
	}
	w.build()
	w.planFaults()
	w.at(w.calm, w.beginCalm)
	w.at(w.rest, w.checkSettled)
	w.play()
	if !w.aborted {
		w.checkEnd()
	}
	w.addInnerResult()
	return w.result
}

// build creates the nodes with different clocks.
func (w *world) build() {
	if w.mode.Ranked {
		w.defaultRevision = core.DefaultRevision{Synced: true, Revision: w.revision()}
	}
	first := w.end
	for i := range 3 + w.rng.IntN(3) + w.mode.Crowd {
		n := w.newNode()
		if i > 0 && w.chance(w.mode.Peers+w.mode.OtherLeases) {
			if n.kind = w.peerKind(); w.mode.Ranked && !n.kind.keyed {
				n.key = ""
			}
		}
		if i > 0 && w.chance(w.mode.Barred) {
			w.spells = append(w.spells, &spell{until: Time(1 << 62), node: n, kind: writes, result: core.Refused})
		}
		n.witnessed = w.chance(w.mode.Witness)
		n.uncoordinated = i > 0 && w.chance(w.mode.Uncoordinated)
		start := w.within(time.Second)
		if w.chance(w.mode.LateStart) {
			start = w.within(w.timing.faults / 2)
		}
		w.after(start, func() { n.start() })
		first = min(first, w.now.add(start))
	}
	if w.slow.steady {
		w.checkFirstTerm(first)
	}
	w.addCoordinators()
	w.addInner()
}

func (w *world) revision() string {
	if w.rng.IntN(2) == 0 {
		return "stable"
	}
	return "canary"
}

func (w *world) play() {
	for {
		e, some := w.queue.pop()
		if !some || e.at > w.end {
			w.now = w.end
			return
		}
		w.now = e.at
		if w.inner != nil {
			w.inner.now = e.at
		}
		e.what()
	}
}

// at plans an event. In an exploration, events are choices instead.
func (w *world) at(t Time, what func()) {
	if !w.choosing.on {
		w.root().queue.push(max(t, w.now), what)
	}
}

func (w *world) after(d time.Duration, what func()) { w.at(w.now.add(d), what) }

// within returns a random duration below d. In an exploration it returns d, which bounds a choice.
func (w *world) within(d time.Duration) time.Duration {
	if w.choosing.on {
		return d
	}
	return time.Duration(w.rng.Int64N(max(1, int64(d))))
}

func (w *world) chance(p float64) bool {
	return p > 0 && (!w.choosing.on || w.choosing.random) && w.rng.Float64() < p
}

func (w *world) faulty() bool { return w.now < w.calm }

func (w *world) tracef(format string, args ...any) {
	if w.Trace != nil {
		fmt.Fprintf(w.Trace, "%10.4f  %s\n", time.Duration(w.now).Seconds(), fmt.Sprintf(format, args...))
	}
}

// setDefault changes the default revision. Each node learns of it later.
func (w *world) setDefault(revision string) {
	w.defaultRevision = core.DefaultRevision{Synced: true, Revision: revision}
	w.happened(2)
	w.checks.herd.event()
	w.checks.busyAt = w.now // a settling holder may be preempted, and the next one settles again
	w.tracef("default revision is now %s", revision)
	for _, n := range w.nodes {
		w.sendDefault(n, w.within(3*time.Second))
	}
	if w.inner != nil {
		w.inner.setDefault(revision)
	}
}

func (w *world) sendDefault(n *node, late time.Duration) {
	w.after(late, func() {
		if p := n.p; p != nil && !p.blind {
			n.run(func() { p.input(core.Input{Kind: core.DefaultChanged, Default: w.defaultRevision}, view{}) })
		}
		if n.q != nil {
			n.q.defaultRevision = w.defaultRevision
		}
	})
}

// beginCalm ends all faults.
func (w *world) beginCalm() {
	w.tracef("calm begins")
	w.apiDown = 0
	w.spells = slices.DeleteFunc(w.spells, func(s *spell) bool { return s.until <= w.now })
	w.happened(3)
	w.resumeRank()
	for _, c := range w.coordinators {
		c.paused, c.clock, c.memory = 0, 1.05, nil
		w.after(w.within(time.Second), c.look)
	}
	if len(w.coordinators) > 0 {
		w.absent(false)
	}
	for _, n := range w.nodes {
		n.resume()
		n.apiDown, n.muted, n.drainsFor = 0, 0, 0
		n.thawWall(n.clocks.frozen)
		if n.duplicate {
			n.retired = true
			n.kill("duplicate ends")
		}
		if n.idle() {
			n.start()
		}
		if n.p == nil {
			continue
		}
		if failed := n.p.s.Failed.Until; failed != 0 {
			w.refusing = max(w.refusing, n.clocks.when(failed))
		}
		w.fitness(n.p, false)
		if !n.p.watching && !n.p.forbidden {
			n.p.openWatch(true)
		}
	}
	if w.mode.Ranked {
		w.setDefault(w.defaultRevision.Revision)
	}
}
