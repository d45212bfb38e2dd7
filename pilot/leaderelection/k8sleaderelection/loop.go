package k8sleaderelection

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// event is an input on its way to the loop, with the lock as it was stored.
type event struct {
	in   core.Input
	lock k8sresourcelock.Snapshot
	call call                  // Replied
	err  error                 // StepDown: the run function's
	news *k8sresourcelock.News // what it says is not in yet
}

// loop owns an elector's state while it runs. Watch, replies and run functions post events,
// or leave signals; nobody but the goroutine that runs it reads or writes the state.
type loop struct {
	inputs

	le         *LeaderElector
	mode       runMode
	core       core.Config
	state      core.State
	base       k8sresourcelock.Snapshot // the object that state.Snap was decoded from
	acked      core.Instant
	changed    time.Time
	term       *term
	publicTerm Term  // the present one, as others know it
	err        error // of the last term that has ended

	stop        <-chan struct{} // the end of Run's context; nil once it was seen
	timer       *time.Timer
	bootAlarm   alarm // by CLOCK_BOOTTIME: the same, should the machine sleep meanwhile
	helpers     sync.WaitGroup
	values      context.Context              // Run's, without its end: a release comes after the stop
	stopFitness context.CancelFunc           // of what runs beside the loop; nil: nothing does
	watch       k8sresourcelock.Subscription // nil: the lock cannot be watched
	report      *reporter

	shared *k8sresourcelock.Shared // what bounds calls
}

func newLoop(le *LeaderElector, mode runMode) *loop {
	l := &loop{inputs: newInputs(), le: le, core: le.core, mode: mode, shared: le.config.Shared}
	if le.former != nil {
		l.state = *le.former
	}
	// One that only observes is unfit for as long as it runs: it takes nothing and asks for nothing.
	l.state.Unfit = le.config.FitnessCheck != nil || mode == observing
	if l.shared == nil {
		l.shared = &k8sresourcelock.Shared{}
	}
	l.core.OneCycle, l.bootAlarm.ring = mode == oneCycle, l.tick
	return l
}

// run takes part until the core says Done. It returns when everything that it started has
// ended, except run functions that outstayed their limit.
func (l *loop) run(ctx context.Context) error {
	defer l.abandon()
	l.start(ctx)
	for l.state.Phase != core.Done {
		switch s, ev := l.next(); {
		case s == watchEvent:
			l.takeNews()
		case s != 0:
			l.pass(l.eventOf(s))
		default:
			l.pass(ev)
		}
	}
	return l.finish()
}

func (l *loop) start(ctx context.Context) {
	l.values, l.stop = context.WithoutCancel(ctx), ctx.Done()
	l.timer = time.NewTimer(math.MaxInt64)
	l.report = newReporter(l.le, &l.core)
	l.report.observes = l.mode == observing
	l.changed = time.Now()
	l.startWatching()
	if l.le.config.FitnessCheck != nil && l.mode != observing {
		fitness, stop := context.WithCancel(l.values)
		l.stopFitness = stop
		l.helpers.Go(func() { l.checkFitness(fitness) })
	}
	l.le.loop.Store(l)
	l.le.clock.jumps.add(l)
	l.le.clock.Now() // what the first reading after a sleep is compared with
	l.pass(l.defaultNow())
	if l.le.absent.Load() {
		l.pass(l.eventOf(absence))
	}
}

// abandon ends the term of a loop that a callback has ended, by a panic or runtime.Goexit:
// whoever called Run may live on, and nobody would shut the gate any more.
func (l *loop) abandon() {
	if l.state.Phase == core.Done {
		return
	}
	if gate := l.le.config.Gate; gate != nil {
		gate.Set(Term{}, Validity{})
	}
	last := *l.le.view.Load()
	last.validity = core.Validity{}
	l.le.view.Store(&last)
	if l.term != nil {
		l.term.cancel(fmt.Errorf("election %s: %w: a callback has panicked", l.le.config.Name, ErrNotLeading))
	}
	go func() { _ = l.finish() }() // a panic waits for nothing
}

// finish ends all that the loop started, and returns how it ended.
func (l *loop) finish() error {
	close(l.ended)
	l.le.loop.Store(nil)
	l.timer.Stop()
	if l.watch != nil {
		l.watch.End()
	}
	l.le.clock.jumps.remove(l)
	if l.stopFitness != nil {
		l.stopFitness()
	}
	l.helpers.Wait()
	if l.core.Successor {
		known := l.state.Resumed()
		l.le.former = &known
	}
	return l.outcome()
}

// outcome is how it ended.
func (l *loop) outcome() error {
	if l.term == nil {
		return l.err
	}
	last := *l.le.view.Load()
	last.drained = l.term.drained()
	l.le.view.Store(&last)
	return l.le.stuck()
}

// eventOf makes a signal an event.
func (l *loop) eventOf(s signal) *event {
	switch s {
	case stopping:
		return &event{in: core.Input{Kind: core.Stop}}
	case reevaluate:
		return l.defaultNow()
	case stepsDown:
		return &event{in: core.Input{Kind: core.StepDown}}
	case absence:
		return &event{in: core.Input{Kind: core.Coordinator, Absent: l.le.absent.Load()}}
	}
	return &event{}
}

// defaultNow tells the default revision.
func (l *loop) defaultNow() *event {
	ev := &event{}
	if ask := l.le.config.DefaultRevision; ask != nil {
		if d := ask(); d.Synced {
			ev.in.Kind, ev.in.Default = core.DefaultChanged, d
		}
	}
	return ev
}

// pass stamps the time, steps, and makes true what the core wants. The gate comes
// first, because closing it must wait for nothing.
func (l *loop) pass(ev *event) {
	switch {
	case ev.news != nil:
		l.decodeNews(ev)
	case ev.in.Kind == core.Replied:
		l.report.answered(l.state.Phase, ev.call)
	case ev.in.Kind == core.Drained:
		l.termEnded()
	}
	ev.in.Now = l.le.clock.read()
	ev.in.Jitter = uint8(rand.Uint32())
	ev.in.Beats = l.beats(&ev.in)
	// One copy of each: a goroutine's stack is as large as its largest pass.
	c := &change{in: ev.in, before: l.state, lock: ev.lock, call: ev.call, err: ev.err}
	c.after, c.action = l.core.Step(c.before, c.in)
	l.state = c.after
	if c.after.Learned != c.before.Learned {
		l.base = ev.lock.Base()
		if c.after.Snap.Version < c.before.Snap.Version { // the core gives an absent lock the version of before
			l.rewound()
		}
	}
	l.setTerm(c)
	l.setGate(&c.action)
	l.publish(c)
	l.report.pass(c)
	l.le.handover.Store(int64(l.report.durations.handoverSince()))
	l.setWork(&c.action)
	if c.action.Op != core.NoOp {
		l.send(c.action)
	}
	l.setTimer(c.in.Now, c.action.Wake)
}

// beats asks the KeyComparisonFunc about the holder of the newest snapshot.
func (l *loop) beats(in *core.Input) bool {
	if !l.core.External {
		return false
	}
	record := l.state.Snap.Record
	if in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK {
		record = in.Snap.Record
	}
	return record.Holder != "" && l.le.config.KeyComparison(record.Key)
}

func (l *loop) setGate(a *core.Action) {
	if gate := l.le.config.Gate; gate != nil {
		gate.Set(l.publicTerm, publicValidity(a.Gate))
	}
}

// setWork starts the term's functions, or tells them to stop.
func (l *loop) setWork(a *core.Action) {
	switch {
	case a.Run && l.term == nil:
		l.term = startTerm(l, l.publicTerm)
	case !a.Run && l.term != nil:
		l.term.cancel(fmt.Errorf("election %s: %w: %s", l.le.config.Name, ErrNotLeading, l.state.Why))
	}
}

// termEnded follows the return of the last run function.
func (l *loop) termEnded() {
	l.err, l.term = l.term.failure(), nil
	if stopped := l.le.config.Callbacks.OnStoppedLeading; stopped != nil && !l.core.OneCycle {
		stopped()
	}
}

// setTimer has the loop woken at that time, which may be never.
func (l *loop) setTimer(now core.ClockReading, wake core.Instant) {
	l.timer.Reset(l.le.clock.mono().Until(wake))
	l.setBootAlarm(now, wake)
}

// publish shows others where the loop stands.
func (l *loop) publish(c *change) {
	s, before := &c.after, &c.before
	if c.in.Kind == core.Replied && s.Validity != before.Validity && s.Validity != (core.Validity{}) {
		l.acked = before.Flight.Sent.Mono
	}
	if s.Phase != before.Phase {
		l.changed = time.Now()
	}
	v := view{
		phase: s.Phase, why: s.Why, term: l.publicTerm, known: s.Known != core.Unread,
		defaultRevision: s.Default, running: s.Running, unfit: s.Unfit, acked: l.acked, changed: l.changed,
		validity: s.Gate(),
	}
	if s.Snap.Exists && s.Snap.Content == core.Readable {
		v.holder, v.key, v.transitions = s.Snap.Record.Holder, s.Snap.Record.Key, s.Snap.Record.Transitions
		v.record = l.report.recordViewOf(s)
	}
	old := l.le.view.Load()
	if *old == v {
		return
	}
	l.le.view.Store(&v)
	if o := l.report.termObserver(); o != nil {
		o.StatusChanged(l.le.config.Name)
	}
	if f := l.le.config.Callbacks.OnNewLeader; f != nil && v.holder != "" && v.holder != old.holder {
		l.helpers.Go(func() { f(v.holder) })
	}
}

// setTerm notes the present term in the form that others get. Its token is the version
// of the object that a fence goes by, which of a lock of two objects is one of them.
func (l *loop) setTerm(c *change) {
	t := c.after.Term
	switch t {
	case c.before.Term:
	case core.Term{}:
		l.publicTerm = Term{}
	default:
		token, _ := codec.ParseVersion(c.lock.ResourceVersion) // as the codec did when it took the snapshot in
		l.publicTerm = Term{LockUID: string(c.lock.UID), Transitions: t.Transitions, Token: token}
	}
}
