package simulation

import (
	"fmt"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// process is one life of a candidate. It applies actions as the loop of the elector does.
type process struct {
	w      *world
	n      *node
	id     string
	key    string
	serial int
	cfg    core.Config
	step   stepper
	s      core.State
	ended  bool

	gate     core.Validity
	work     bool // run functions should run
	alive    bool // not all of them have returned, or an admitted write is in flight
	writing  bool // that one
	waits    bool // they do not start, because the validity of the first lock has ended
	returns  int  // number of the current plan of their return
	returnAt Time
	call     *call
	took     [8]time.Duration // of the latest attempts
	attempts int
	timer    int // number of the current timer

	watching, forbidden bool
	barred              bool          // from the inner lock
	releaseBy           Time          // the release of the outer lock does not wait longer
	blind               bool          // it never learns the default revision
	unfit               bool          // result of its fitness check
	lag                 time.Duration // constant delay of its watch
	startedAt           core.Instant
	watch               int  // number of the current watch
	cut                 bool // no events arrive

	// Truth, for checks.
	acting      *term             // term of the run functions
	acked       *term             // term of the newest acknowledged acquire
	ackedSent   core.ClockReading // of the newest acknowledged write
	ackedFirst  core.ClockReading // of the first call with the same record
	ackedOlder  core.ClockReading // of the write before
	ackedAt     Time
	anyAck      bool
	pausedAt    Time         // last true time at which it was paused, or -1
	troubledAt  Time         // last fault that kept it from renewing
	lateUntil   Time         // arrival of the last event that needs longer than a RetryPeriod
	cooledUntil core.Instant // end of its last cool-down
	stopAsked   bool         // a stop or a failed run function explains the end of its term
	seen        witness
	newestWrite core.Write        // its newest acknowledged write
	wrote       [4]core.Write     // its latest writes
	wroteAt     core.ClockReading // when the latest was first sent
	newest      view
	fresh       bool   // the last view was the newest
	reached     uint64 // events below this version are old
	base        view   // view of the snapshot in the core
	lastGate    core.Validity
	watched     core.Validity
	sights      []sight
	seenTerms   []*term
	leftBehind  core.Marker // of another term than the record's
	leftAt      core.Instant
	calls       []Time
	turnsAt     Time
	turns       int
	sentCalls   int
	askedAt     Time           // when the call that is answered now was sent
	learnedAt   Time           // last new view
	registered  core.EndedTerm // with the witness of the node; zero: none
	sentReads   int
	sentAtCheck int
	efforts
	schedule
	composition
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.id, p.serial) }

func (p *process) now() core.ClockReading { return p.n.clocks.moment(p.w.now) }

// input is one turn of the loop.
func (p *process) input(in core.Input, v view) {
	if p.ended {
		return
	}
	w := p.w
	in.Now = p.now()
	in.Jitter = uint8(w.rng.Uint32())
	in.Beats = p.beats(in)
	w.result.Steps++
	if in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK {
		w.checks.seenStored(p, v)
		p.sees(v, in.Kind == core.Seen || in.Kind == core.Replied && p.askedAt < p.learnedAt)
	}
	p.seen.observe(in)
	p.countCauses(in, v)
	var a core.Action
	before, learned := p.s.Phase, p.s.Learned
	p.s, a = p.step(p.cfg, p.s, in)
	p.register()
	p.cooledUntil = max(p.cooledUntil, p.s.BackOff.CoolDown)
	if w.choosing.on {
		p.s.Effort.Herd = core.Herd{} // turns are random
	}
	if w.choosing.recorded != nil {
		w.choosing.recorded.add(p, in, a)
	}
	if p.s.Learned != learned {
		p.base = v
		p.seen.shown(p, v.snap, in.Now.Mono, before)
	}
	if w.Trace != nil {
		p.trace(before, in, a)
	}
	w.checks.action(p, in, v, a)
	w.checks.countLines(p, before)
	p.apply(a)
	if w.chance(0.05) {
		p.apply(a)
	}
	p.innerChanged()
	if p.s.Phase == core.Done && !p.ended {
		p.n.end("done: " + string(p.s.Why))
		if in := p.n.inner; in != nil && in.p != nil {
			in.p.stop()
		}
		if p.cfg.OneCycle {
			w.restartLater(p.n, w.within(3*time.Second))
		}
	}
}

// beats is the result of the KeyComparisonFunc for the holder of the input or, if it has none, for the known
// holder.
func (p *process) beats(in core.Input) bool {
	record := p.s.Snap.Record
	if in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK {
		record = in.Snap.Record
	}
	return p.cfg.External && record.Holder != "" && (p.key > record.Key || p.w.loose && p.key == record.Key)
}

// apply sets gate, run functions, call and timer, in this order.
func (p *process) apply(a core.Action) {
	p.w.checks.gate(p, a)
	p.gate = a.Gate
	p.setWork(a)
	switch c := p.call; {
	case a.Op != core.NoOp && c == nil:
		p.send(a)
	case a.Op == core.NoOp && c != nil && a.Until <= p.now().Mono:
		p.w.at(p.w.now, func() { p.cancel(c) })
	}
	p.wake, p.until = a.Wake, a.Until
	p.timer++
	if a.Wake != core.Never {
		p.setTimer(a.Wake, p.timer)
	}
}

func (p *process) setTimer(wake core.Instant, timer int) {
	late := p.w.within(time.Millisecond)
	if p.w.faulty() && p.w.chance(p.w.mode.Net/4) {
		late = p.w.within(100 * time.Millisecond)
	}
	p.w.at(p.n.clocks.when(wake).add(late), func() {
		p.n.run(func() {
			switch {
			case p.timer != timer || p.ended:
			case p.now().Mono < wake: // the machine was suspended
				p.setTimer(wake, timer)
			default:
				p.input(core.Input{Kind: core.Tick}, view{})
			}
		})
	})
}

func (p *process) setWork(a core.Action) {
	if p.n.inner != nil {
		p.setCampaign(a)
		return
	}
	if a.Gate != (core.Validity{}) {
		a.Gate = p.openUntil()
	}
	switch {
	case a.Run && !p.work && !p.waits && p.outsideEnded():
		p.waits = true
	case !a.Run && p.waits:
		p.waits, p.unstarted = false, true
		p.planReturn(0)
	case p.waits:
	case a.Run && !p.work:
		p.startWork()
	case !a.Run && p.work:
		p.work = false
		p.w.checks.leaderChanged()
		limit := p.cfg.DrainLimit
		if a.Gate != (core.Validity{}) && p.w.chance(0.1) {
			limit = p.cfg.StopLimit // the lease is kept, so a slow stop is allowed
		}
		d := p.w.within(limit * 8 / 10)
		if a.Gate != (core.Validity{}) && p.n.drainsFor > 0 {
			d, p.n.drainsFor = p.n.drainsFor, 0
		}
		p.planReturn(d)
	case p.alive && !p.work && a.Gate == (core.Validity{}):
		// Validity ended during the drain. Now the drain limit counts.
		if limit := p.cfg.DrainLimit * 8 / 10; p.returnAt > p.w.now.add(limit) {
			p.planReturn(p.w.within(limit))
		}
	}
}

func (p *process) startWork() {
	p.w.checks.start(p)
	p.w.checks.changes(p)
	p.work, p.alive = true, true
	p.returns++
	p.w.result.Terms++
	p.w.checks.leaderChanged()
	if p.w.faulty() && p.w.chance(p.w.mode.Fail) {
		turn := p.returns
		p.w.after(p.w.within(30*time.Second), func() {
			p.n.run(func() {
				if p.work && p.returns == turn && p.w.faulty() {
					p.w.tracef("%s: a run function fails", p)
					p.fail()
				}
			})
		})
	}
}

// fail ends the term because a run function failed.
func (p *process) fail() {
	p.stopAsked = true
	p.input(core.Input{Kind: core.StepDown}, view{})
	p.leave()
}

// planReturn makes the run functions return within d. An admitted write may be answered later, but within d.
func (p *process) planReturn(d time.Duration) {
	p.returns++
	p.returnAt = p.w.now.add(d)
	p.writing = p.w.rng.IntN(3) == 0
	if p.writing {
		p.ends(p.w.now.add(p.w.within(d)), func() { p.drained() })
	}
	p.ends(p.returnAt, func() {
		p.writing = false
		p.drained()
	})
}

// ends calls what at a time, unless another end of the run functions was planned since.
func (p *process) ends(at Time, what func()) {
	turn := p.returns
	p.w.at(at, func() {
		p.n.run(func() {
			if p.returns == turn && !p.ended {
				what()
			}
		})
	})
}

// drained ends the term when the run functions have returned and no admitted write is in flight.
func (p *process) drained() {
	if early := p.w.Bug != nil && p.w.Bug.Name == drainsWithoutWrites; p.writing && !early {
		return
	}
	p.unstarted = false
	if !p.writing {
		p.alive, p.acting = false, nil
		p.w.checks.busyAt = p.w.now
	}
	p.w.tracef("%s: run functions returned, a write in flight: %v", p, p.writing)
	p.input(core.Input{Kind: core.Drained}, view{})
	p.innerChanged()
}

// drainsWithoutWrites is the planted bug that does not wait for admitted writes.
const drainsWithoutWrites = "drained-before-writes"

func (p *process) stop() {
	p.n.run(func() {
		if !p.ended {
			p.w.tracef("%s: stop", p)
			p.stopAsked = true
			p.input(core.Input{Kind: core.Stop}, view{})
		}
	})
}

func (p *process) trace(before core.Phase, in core.Input, a core.Action) {
	what := in.Kind.String() + " " + in.Default.Revision
	if in.Kind == core.Replied {
		what += in.Result.String()
	}
	if in.Snap != (core.Snapshot{}) {
		what += " " + shown(in.Snap)
	}
	phase := p.s.Phase.String()
	if before != p.s.Phase {
		phase = before.String() + "→" + phase + " (" + string(p.s.Why) + ")"
	}
	p.w.tracef("%-8v %-60s %s: %s, %s on %d, marker %q, gate %v, wake %v", p, what, phase, a.Why, a.Op, a.Base.Version,
		a.Annotations.Marker.Identity, a.Gate.Left(in.Now), in.Now.Mono.Until(a.Wake))
}

// shown formats a snapshot.
func shown(s core.Snapshot) string {
	if s.Content != record.Readable {
		return fmt.Sprintf("{%d exists %v, content %v}", s.Version, s.Exists, s.Content)
	}
	m := s.Annotations.Marker
	return fmt.Sprintf("{%d %s %q/%d marker %s/%d}", s.Version, s.UID, s.Record.Holder, s.Record.Transitions, m.Identity, m.Transitions)
}
