package simulation

import (
	"fmt"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// process is one life of a candidate. It applies actions as the elector's loop does.
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
	work     bool // functions are wanted
	alive    bool // they have not all returned
	returns  int  // which plan of their return counts
	returnAt Time
	call     *call
	timer    int // which timer counts

	watching, forbidden bool
	blind               bool          // it never learns the default revision
	unfit               bool          // what its check of fitness would say
	lag                 time.Duration // by which its watch is behind, all the time
	startedAt           core.Instant
	watch               int  // which watch counts
	cut                 bool // and nothing comes through
	watchHistory        int

	// The truth, for checks alone.
	acting       *term             // the term that the functions were started in
	acked        *term             // begun by the newest acquire that was acknowledged
	ackedSent    core.ClockReading // of the newest acknowledged write
	ackedAt      Time
	ackedVersion position
	anyAck       bool
	pausedAt     Time // the last true time at which it was paused, or -1
	troubledAt   Time // when something last kept it from renewing
	stopAsked    bool // a stop, or a failed function, explains the end of its term
	seen         witness
	newestStamp  core.Stamp    // of its newest acknowledged write
	wrote        [4]core.Stamp // of what it sent last, answered or not
	newest       view
	fresh        bool   // the view that it was shown last is the newest
	reached      uint64 // the version below which events are old
	base         view   // as the loop keeps it: what the core's snapshot was decoded from
	lastGate     core.Validity
	watched      core.Validity
	sights       []sight
	seenTerms    []*term
	seenUpTo     [histories]uint64 // the newest version seen, by history
	leftBehind   core.Marker       // of another term than the record's
	leftAt       core.Instant
	calls        []Time
	turnsAt      Time
	turns        int
	sentCalls    int
	askedAt      Time // when the call was sent that is answered now
	learnedAt    Time // when it was last shown something new
	sentReads    int
	sentAtCheck  int
	efforts
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
		p.sees(v, in.Kind == core.Seen || in.Kind == core.Replied && p.askedAt < p.learnedAt)
	}
	p.seen.observe(in)
	p.learns(in, v)
	var a core.Action
	before, learned := p.s.Phase, p.s.Learned
	p.s, a = p.step(p.cfg, p.s, in)
	if p.s.Learned != learned {
		p.base = v
		p.seen.shown(p, v.snap, in.Now.Mono, before)
	}
	if w.Trace != nil {
		p.trace(before, in, a)
	}
	w.checks.action(p, in, v, a)
	w.checks.says(p, before)
	p.apply(a)
	if w.chance(0.05) {
		p.apply(a)
	}
	if p.s.Phase == core.Done && !p.ended {
		p.n.kill("done: " + string(p.s.Why))
		if p.cfg.OneCycle {
			w.restartLater(p.n, w.within(3*time.Second))
		}
	}
}

// beats is the user's comparison of keys, for the holder that the input shows or, if it
// shows none, the one that is known.
func (p *process) beats(in core.Input) bool {
	record := p.s.Snap.Record
	if in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK {
		record = in.Snap.Record
	}
	return p.cfg.External && record.Holder != "" && (p.key > record.Key || p.w.loose && p.key == record.Key)
}

// apply makes true what the action wants: first the gate, then the work, then the
// call, then the timer.
func (p *process) apply(a core.Action) {
	p.w.checks.gate(p, a)
	p.gate = a.Gate
	p.setWork(a)
	if a.Op != core.NoOp && p.call == nil {
		p.send(a)
	}
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
			case p.now().Mono < wake: // the machine slept meanwhile
				p.setTimer(wake, timer)
			default:
				p.input(core.Input{Kind: core.Tick}, view{})
			}
		})
	})
}

// setWork starts the functions, or tells them to stop.
func (p *process) setWork(a core.Action) {
	switch {
	case a.Run && !p.work:
		p.startWork()
	case !a.Run && p.work:
		p.work = false
		p.w.checks.leaderChanged()
		limit := p.cfg.DrainLimit
		if a.Gate != (core.Validity{}) && p.w.chance(0.1) {
			limit = p.cfg.StopLimit // the lease is kept; a slow stop is allowed
		}
		d := p.w.within(limit * 8 / 10)
		if a.Gate != (core.Validity{}) && p.n.drainsFor > 0 {
			d, p.n.drainsFor = p.n.drainsFor, 0
		}
		p.planReturn(d)
	case p.alive && !p.work && a.Gate == (core.Validity{}):
		// The cover went while they drained: now the drain limit counts.
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
					p.w.tracef("%s: a function fails", p)
					p.stopAsked = true
					p.input(core.Input{Kind: core.StepDown}, view{})
				}
			})
		})
	}
}

// planReturn lets the functions return d from now.
func (p *process) planReturn(d time.Duration) {
	p.returns++
	turn := p.returns
	p.returnAt = p.w.now.add(d)
	p.w.at(p.returnAt, func() {
		p.n.run(func() {
			if p.returns != turn || p.ended {
				return
			}
			p.alive, p.acting = false, nil
			p.w.checks.busyAt = p.w.now
			p.w.tracef("%s: functions have returned", p)
			p.input(core.Input{Kind: core.Drained}, view{})
		})
	})
}

// stop asks the process to end well.
func (p *process) stop() {
	p.n.run(func() {
		if !p.ended {
			p.w.tracef("%s is told to stop", p)
			p.stopAsked = true
			p.input(core.Input{Kind: core.Stop}, view{})
		}
	})
}

func (p *process) trace(before core.Phase, in core.Input, a core.Action) {
	s := p.s
	what := in.Kind.String()
	switch in.Kind {
	case core.Seen:
		what += " " + shown(in.Snap)
	case core.Replied:
		what += " " + in.Result.String()
		if in.Result == core.OK {
			what += " " + shown(in.Snap)
		}
	case core.DefaultChanged:
		what += " " + in.Default.Revision
	}
	phase := s.Phase.String()
	if before != s.Phase {
		phase = before.String() + "→" + phase + " (" + string(s.Why) + ")"
	}
	line := fmt.Sprintf("%-8v %-60s %s: %s", p, what, phase, a.Why)
	if a.Op != core.NoOp {
		line += fmt.Sprintf(", %s on %d", a.Op, a.Base.Version)
		if a.Annotations.Marker.Identity != "" {
			line += " with marker of " + a.Annotations.Marker.Identity
		}
	}
	if a.Gate != (core.Validity{}) {
		line += fmt.Sprintf(", gate %.3fs", a.Gate.Left(in.Now).Seconds())
	}
	if a.Wake != core.Never {
		line += fmt.Sprintf(", wake %.3fs", in.Now.Mono.Until(a.Wake).Seconds())
	}
	p.w.tracef("%s", line)
}

// shown is a snapshot in a few words.
func shown(s core.Snapshot) string {
	if !s.Exists {
		return fmt.Sprintf("{%d absent}", s.Version)
	}
	text := fmt.Sprintf("{%d %s ", s.Version, s.UID)
	switch s.Content {
	case core.Missing:
		text += "no record"
	case core.Unreadable:
		text += "unreadable"
	case core.Readable:
		text += fmt.Sprintf("%q/%d", s.Record.Holder, s.Record.Transitions)
	}
	if m := s.Annotations.Marker; m.Identity != "" {
		text += fmt.Sprintf(" marker %s/%d", m.Identity, m.Transitions)
	}
	return text + "}"
}
