package simulation

import (
	"fmt"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// node is a machine with one process, like a pod.
type node struct {
	w             *world
	name          string
	outer, inner  *node // of a process with two locks: see held.go
	key           string
	clocks        *clocks
	apiDown       Time // it does not reach the store before
	muted         Time // its calls reach the store, and the answers are lost before
	p             *process
	kind          *peerKind // nil: incumbent
	q             *peer
	retired       bool // no more processes start here
	uncoordinated bool // its processes are not coordinated
	duplicate     bool // its processes have the name of another node
	witnessed     bool // it has a witness
	// drainsFor is the duration of the next drain with a kept lease. If 0, it is random.
	drainsFor time.Duration
	started   int
	lines     [2]line
	line      int     // connection of first attempts
	flying    []*call // in an exploration: calls that have not reached the store
	effect    effect  // of its moves: see lookAhead

	paused  bool
	held    []waiting
	watched Time // when the last watch event is processed
	pauses  int
}

// maxSkew keeps the rates of any two clocks within delta of true time.
const maxSkew = delta * 0.95

func (w *world) newNode() *node {
	n := &node{w: w, name: fmt.Sprintf("pod-%c", 'a'+len(w.nodes)%26), key: w.revision()}
	if round := len(w.nodes) / 26; round > 0 {
		n.name += fmt.Sprint(round)
	}
	if w.mode.External {
		n.key = fmt.Sprintf("v%d", 1+w.rng.IntN(3))
	}
	if w.chance(w.mode.Remote) {
		n.key = "^" + n.key
	}
	n.clocks = &clocks{
		rate:     1 + (2*w.rng.Float64()-1)*maxSkew,
		monoZero: w.rng.Int64N(int64(1000 * time.Hour)),
		bootZero: int64(time.Hour) + w.rng.Int64N(int64(1000*time.Hour)),
		hasBoot:  w.rng.IntN(5) > 0,
		asleepAt: -1,
		wallZero: 1_780_000_000e9 + int64(w.within(10*time.Hour)) - int64(5*time.Hour),
	}
	w.nodes = append(w.nodes, n)
	return n
}

// waiting is an event that a paused process will find.
type waiting struct {
	what  func()
	watch bool
}

// run executes what on the process. A paused process does it later.
func (n *node) run(what func()) { n.do(waiting{what: what}) }

// runWatch is run for watch events, which keep their order.
func (n *node) runWatch(what func()) {
	event := waiting{what: what, watch: true}
	if !n.paused && n.w.now < n.watched {
		n.watched++
		n.w.at(n.watched, func() { n.do(event) })
		return
	}
	n.do(event)
}

func (n *node) do(what waiting) {
	if n.paused {
		n.held = append(n.held, what)
		return
	}
	what.what()
}

// pause stops the process (SIGSTOP) or the whole machine (suspend).
func (n *node) pause(d time.Duration, suspend bool) {
	if n = n.root(); n.paused {
		return
	}
	if n.inner != nil {
		n.inner.paused = true
		n.inner.pauses++
		n.inner.noticePause()
	}
	n.w.tracef("%s paused for %v, suspended: %v", n.name, d, suspend)
	n.paused = true
	n.pauses++
	if suspend {
		n.clocks.suspend(n.w.now)
	}
	n.noticePause()
	turn := n.pauses
	n.w.after(d, func() {
		if n.pauses == turn {
			n.resume()
		}
	})
}

// resume executes the events that waited, in random order. Watch events keep their order.
func (n *node) resume() {
	if n = n.root(); !n.paused {
		return
	}
	n.w.tracef("%s resumes", n.name)
	if n.clocks.asleepAt >= 0 {
		n.clocks.wake(n.w.now)
	}
	n.proceed()
	if n.inner != nil {
		n.inner.proceed()
	}
}

// proceed executes the events that waited.
func (n *node) proceed() {
	n.paused = false
	n.pauses++
	n.noticePause()
	held := n.held
	n.held = nil
	last := time.Duration(0)
	for _, what := range held {
		late := n.w.within(2 * time.Millisecond)
		if what.watch {
			late = last + late/8
			last = late
			n.watched = n.w.now.add(late)
		}
		n.w.after(late, func() { n.do(what) })
	}
}

// noticePause records the start or end of a pause, which explains many failures.
func (n *node) noticePause() {
	if n.p != nil {
		n.p.pausedAt, n.p.troubledAt = n.w.now, n.w.now
	}
	if n.q != nil {
		n.q.pausedAt = n.w.now
	}
}

func (n *node) idle() bool {
	return n.p == nil && n.q == nil && (n.inner == nil || n.inner.outer == nil || n.inner.p == nil)
}

func (w *world) anyProcess() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.idle() })
}

func (n *node) stop() {
	n = n.root()
	if n.p != nil {
		n.p.stop()
	}
	if n.q != nil {
		n.q.stop()
	}
}

// leads reports whether run functions should run here.
func (n *node) leads() bool { return n.p != nil && n.p.work || n.q != nil && n.q.leads }

// start begins a new process with the same name.
func (n *node) start() {
	n = n.root()
	if !n.idle() || n.paused || n.retired {
		return
	}
	n.started++
	if n.kind != nil {
		n.startPeer()
		return
	}
	n.startProcess()
	if n.inner != nil {
		n.inner.started++
		n.inner.startProcess()
	}
}

func (n *node) startProcess() {
	w := n.w
	p := &process{
		w: w, n: n, id: n.name, key: n.key, serial: len(w.procs) + 1,
		cfg: n.config(), step: stepOf(w.Bug), pausedAt: -1, troubledAt: w.now,
		forbidden: w.chance(w.mode.Forbidden), blind: w.chance(w.mode.Blind), efforts: newEfforts(w.now),
	}
	p.startedAt = p.now().Mono
	p.s.Barred, p.barred, p.told = n.outer != nil, n.outer != nil, true
	if w.chance(w.mode.Lag) {
		p.lag = w.timing.retry + w.within(2*w.timing.retry)
	}
	w.happened(1)
	wished := slices.ContainsFunc(w.coordinators, func(c *coordinator) bool { return c.wish == n.name })
	if wished || !w.anyProcess() {
		w.checks.busyAt = w.now // a wished candidate settles for a lease after its start
	}
	n.p = p
	w.procs = append(w.procs, p)
	w.tracef("%s starts, key %s, rate %.4f, %v", p, p.key, n.clocks.rate, w.timing.lease)
	p.input(core.Input{Kind: core.Tick}, view{})
	if w.mode.Ranked {
		w.sendDefault(n, w.within(time.Second))
	}
	if !p.forbidden {
		w.after(w.within(100*time.Millisecond), func() { p.openWatch(true) })
	}
}

func (n *node) config() core.Config {
	t := n.w.timing
	c := core.Config{
		Self: n.name, Key: n.key, Ranked: n.w.mode.Ranked, Release: true,
		Timing: core.Timing{Lease: t.lease, Validity: t.validity, Retry: t.retry, SyncWait: n.w.syncWait}.Derived(delta),
	}
	c.External, c.OneCycle = n.w.mode.External, n.w.mode.OneCycle
	c.Coordinated = n.coordinated()
	if n.w.Seed/uint64(len(Modes))%2 == 0 {
		c.Resolution = 1 // a Lease
	}
	if c.OneCycle {
		c.Release = n.started%2 == 0
	}
	if n.w.mode.peers() {
		c.PeerGrace = t.grace()
	}
	return c
}

// kill ends the process and its run functions immediately.
func (n *node) kill(why string) {
	n = n.root()
	n.end(why)
	if n.inner != nil {
		n.inner.end(why)
	}
}

// end ends the process of one lock.
func (n *node) end(why string) {
	if q := n.q; q != nil {
		n.w.tracef("%s ends: %s", q, why)
		q.ended, q.leads = true, false
		n.q, n.held = nil, nil
		if q.kind.lease > n.w.timing.lease {
			n.w.heal(q.term)
		}
		n.w.checks.leaderChanged()
		return
	}
	p := n.p
	if p == nil {
		return
	}
	n.w.tracef("%s ends: %s", p, why)
	n.w.happened(1)
	if p.work {
		n.w.checks.herd.event()
	}
	p.ended, p.work, p.alive, p.gate = true, false, false, core.Validity{}
	n.w.checks.busyAt = n.w.now
	n.p, n.held = nil, nil
	n.w.checks.leaderChanged()
	n.w.died(p)
}
