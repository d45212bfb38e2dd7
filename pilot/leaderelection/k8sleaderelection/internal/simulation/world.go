package simulation

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// delta is the bound on clock rates that the drain limit is computed from.
const delta = 0.02

// Options choose one run.
type Options struct {
	Seed uint64
	// Mode says which faults can occur; nil: the seed chooses.
	Mode *Mode
	// Bug is planted; nil: none.
	Bug *Bug
	// Trace gets a line for each step; nil: none.
	Trace io.Writer
}

// Result sums up a run.
type Result struct {
	Seed       uint64
	Mode       string
	Steps      int
	Terms      int           // how often functions were started
	PeerTerms  int           // and those of peers
	Settled    time.Duration // from the calm to the last change of leader
	Leaderless time.Duration // the longest time without one, in all of the run
	Rate       int           // the most calls by one process in a second
	Violations []Violation
}

// world is one run.
type world struct {
	Options
	rng   *rand.Rand
	mode  Mode
	now   Time
	queue queue
	store store
	nodes []*node
	procs []*process // all of ours that ever were, oldest first
	peers int        // how many of others ever were

	coordinators []*coordinator

	timing          timing
	calm, end       Time
	rest            Time // the calm has lasted long enough
	aborted         bool
	defaultRevision core.DefaultRevision
	apiDown         Time    // nobody reaches the store before
	refuses         float64 // how many calls in an outage are refused, instead of hanging
	syncWait        time.Duration
	loose           bool // equal keys beat each other
	spells          []*spell
	checks          checks
	result          Result
}

// timing is one set of durations, as a user would set them.
type timing struct {
	lease, cover, retry time.Duration
	faults, quiet       time.Duration
}

var timings = []timing{
	{15 * time.Second, 10 * time.Second, 2 * time.Second, 150 * time.Second, 40 * time.Second},
	{30 * time.Second, 15 * time.Second, 7500 * time.Millisecond, 300 * time.Second, 75 * time.Second},
}

// bound is how long an election may take to come to rest once nothing goes wrong any
// more: what is in flight ends; the longest lease runs out, by a slow clock, twice
// (an unreadable record, or a holder that died); and a higher rank preempts and settles.
func (t timing) bound() time.Duration {
	return 3*t.lease*105/100 + t.cover + 8*t.retry
}

// peerBound is added to that with peers: they poll, and a candidate that preempts them waits longer.
func (t timing) peerBound() time.Duration { return t.lease + t.grace() + 5*t.retry }

// idle is how long nobody may act while nothing goes wrong but that processes end: a
// lease runs out, and if its holder was settling, so does that of the next one.
func (t timing) idle() time.Duration { return 2*t.lease*105/100 + 3*t.retry }

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
		w.rest = w.rest.add(w.timing.lease) // the longest pause of those who could not write
	}
	if w.mode.Peers > 0 {
		w.rest = w.rest.add(w.timing.peerBound())
	}
	w.end = w.rest.add(w.timing.quiet)
	w.store.w, w.checks.w = w, w
	w.store.undone = map[uint64]bool{}
	w.checks.handovers.left = handoverBudget
	if w.rng.IntN(3) > 0 {
		w.syncWait = 3 * time.Second
	}
	w.loose = w.mode.External && w.rng.IntN(3) == 0
	w.build()
	w.planFaults()
	w.at(w.calm, w.beginCalm)
	w.at(w.rest, w.checkSettled)
	w.play()
	if !w.aborted {
		w.checkEnd()
	}
	return w.result
}

// build makes the machines. Some are fast, some slow, and none agrees on the time.
func (w *world) build() {
	if w.mode.Ranked {
		w.defaultRevision = core.DefaultRevision{Synced: true, Revision: w.revision()}
	}
	for i := range 3 + w.rng.IntN(3) {
		n := w.newNode()
		if i > 0 && w.chance(w.mode.Peers) {
			n.kind = w.mode.peerKind()
		}
		n.loner = i > 0 && w.chance(w.mode.Loners)
		start := w.within(time.Second)
		if w.chance(w.mode.LateStart) {
			start = w.within(w.timing.faults / 2)
		}
		w.after(start, func() { n.start() })
	}
	w.addCoordinators()
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
		e.what()
	}
}

func (w *world) at(t Time, what func()) { w.queue.push(max(t, w.now), what) }

func (w *world) after(d time.Duration, what func()) { w.at(w.now.add(d), what) }

// within is a random duration below d.
func (w *world) within(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(max(1, int64(d))))
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *world) faulty() bool { return w.now < w.calm }

func (w *world) tracef(format string, args ...any) {
	if w.Trace != nil {
		fmt.Fprintf(w.Trace, "%10.4f  %s\n", time.Duration(w.now).Seconds(), fmt.Sprintf(format, args...))
	}
}

// setDefault flips the default revision. Each node hears of it some time later.
func (w *world) setDefault(revision string) {
	w.defaultRevision = core.DefaultRevision{Synced: true, Revision: revision}
	w.happened(2)
	w.checks.busyAt = w.now // whoever settles may have to give way, and the next one settles anew
	w.tracef("default revision is now %s", revision)
	for _, n := range w.nodes {
		w.tellDefault(n, w.within(3*time.Second))
	}
}

func (w *world) tellDefault(n *node, late time.Duration) {
	w.after(late, func() {
		if p := n.p; p != nil && !p.blind {
			n.run(func() { p.input(core.Input{Kind: core.DefaultChanged, Default: w.defaultRevision}, view{}) })
		}
		if n.q != nil {
			n.q.defaultRevision = w.defaultRevision
		}
	})
}

// beginCalm ends all that goes wrong.
func (w *world) beginCalm() {
	w.tracef("calm begins")
	w.apiDown = 0
	w.spells = nil
	w.happened(3)
	w.resumeRank()
	for _, c := range w.coordinators {
		c.deaf, c.clock = 0, 1.05
		w.after(w.within(time.Second), c.look)
	}
	if len(w.coordinators) > 0 {
		w.absent(false)
	}
	for _, n := range w.nodes {
		n.resume()
		n.apiDown, n.drainsFor = 0, 0
		n.thawWall(n.clocks.frozen)
		if n.duplicate {
			n.retired = true
			n.kill("its name is another's")
		}
		if n.idle() {
			n.start()
		}
		if n.p == nil {
			continue
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
