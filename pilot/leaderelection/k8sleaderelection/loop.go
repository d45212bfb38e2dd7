package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// event is an input for the loop, with the stored lock that it shows.
type event struct {
	in      core.Input
	lock    k8sresourcelock.Snapshot
	call    call                   // of Replied
	err     error                  // of StepDown: the error of a run function
	watched *k8sresourcelock.Event // not decoded yet
}

// loop owns the state of a running elector. Only the goroutine of run reads or writes the state. Watch, replies and run
// functions post events or raise signals.
type loop struct {
	inputs

	le         *LeaderElector
	core       core.Config
	state      core.State
	base       k8sresourcelock.Snapshot // the object that state.Snap was decoded from
	changed    time.Time                // of the phase
	bars       uint64                   // of the elector, when the state got the latest one
	term       *term
	witnessed  WitnessedTerm // zero if no term is registered
	cancelCall context.CancelFunc
	err        error // of the last ended term
	questions  questions
	rejected   string // why the API server rejected the last write of this candidate as holder
	unreadable string // why the API server rejected the last read
	failed     string // why the last request failed

	stop        <-chan struct{} // the end of Run's context; nil after it was received
	timer       *time.Timer
	bootAlarm   alarm // the same by CLOCK_BOOTTIME, in case the machine sleeps
	helpers     sync.WaitGroup
	values      context.Context              // Run's context without its end, because the release follows it
	stopFitness context.CancelFunc           // nil without a fitness check
	watch       k8sresourcelock.Subscription // nil if the lock cannot be watched
	report      *reporter

	shared *k8sresourcelock.Shared
}

func newLoop(le *LeaderElector, oneCycle bool) *loop {
	l := &loop{inputs: newInputs(), le: le, core: le.core, shared: le.config.Shared}
	if le.config.FitnessCheck != nil {
		le.unfit.Store(true) // until the first check
	}
	l.state.Unfit = le.unfit.Load()
	l.bars = le.bars.Load()
	l.state.Barred = isBarred(l.bars)
	if l.shared == nil {
		l.shared = &k8sresourcelock.Shared{}
	}
	l.core.OneCycle = oneCycle
	l.bootAlarm.ring = l.tick
	return l
}

// run takes part until the core is Done. It returns when everything that it started has ended, except run functions that
// exceeded their limit.
func (l *loop) run(ctx context.Context) error {
	defer l.abandon()
	l.start(ctx)
	for l.state.Phase != core.Done {
		l.handle(l.next())
	}
	return l.finish()
}

// handle handles a signal, or without one an event. It has its own frame, because the runtime does not shrink the stack of a
// goroutine that waits with a quarter of it in use.
//
//go:noinline
func (l *loop) handle(s signal, ev *event) {
	switch s {
	case 0:
		l.pass(ev)
	case watchEvent:
		l.takeWatchEvents()
	case refresh:
		l.ask(l.state.Snap.Record, true)
	default:
		l.pass(l.eventOf(s))
	}
}

// firstAnswer is how long the first pass waits for DefaultRevision.
const firstAnswer = time.Second

func (l *loop) start(ctx context.Context) {
	l.values = context.WithoutCancel(ctx)
	l.stop = ctx.Done()
	l.timer = time.NewTimer(firstAnswer)
	l.report = newReporter(ctx, l.le, &l.core)
	l.changed = time.Now()
	l.startWatching()
	l.le.loop.Store(l)
	l.le.clock.jumps.add(l)
	l.le.clock.Now() // the first reading, for the detection of jumps
	l.ask(core.Record{}, true)
	select {
	case ev := <-l.events: // with the default revision
		l.pass(ev)
	case <-l.timer.C:
		l.pass(&event{})
	}
	if l.le.config.FitnessCheck != nil {
		fitness, stop := context.WithCancel(l.values)
		l.stopFitness = stop
		l.helpers.Go(func() { l.checkFitness(fitness) })
	}
	if l.le.absent.Load() {
		l.pass(l.eventOf(coordinatorChanged))
	}
	l.signal(fitnessChanged | barChanged) // they may have changed before the loop received signals
}

// abandon closes the gate and ends the term if a Gate, Witness or Lock ended the loop by a panic or runtime.Goexit. The caller of Run
// may recover, and no other goroutine would close the gate.
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
		l.term.cancel(fmt.Errorf("election %s: %w: the elector panicked", l.le.config.Name, ErrNotLeading))
	}
	go func() { _ = l.finish() }() // a panic must not wait
}

// finish ends everything that the loop started and returns its error.
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
	if l.term == nil {
		return l.err
	}
	last := *l.le.view.Load()
	last.drained = l.term.ended
	l.le.view.Store(&last)
	return l.le.stuck()
}

// eventOf returns the event of a signal.
func (l *loop) eventOf(s signal) *event {
	ev := &event{}
	switch s {
	case stopping:
		ev.in.Kind = core.Stop
	case stepDown:
		ev.in.Kind = core.StepDown
	case coordinatorChanged:
		ev.in.Kind, ev.in.Absent = core.Coordinator, l.le.absent.Load()
	case fitnessChanged:
		ev.in.Kind, ev.in.Unfit = core.Fitness, l.le.unfit.Load()
	case barChanged:
		l.bars = l.le.bars.Load()
		ev.in.Kind, ev.in.Barred = core.Bar, isBarred(l.bars)
	}
	return ev
}

// pass handles one event. Nothing may delay the closing of the gate, so the gate is set directly after the step.
func (l *loop) pass(ev *event) {
	l.receive(ev)
	ev.in.Now = l.le.clock.read()
	// Only one copy of each state, to keep the stack of the goroutine small.
	c := &change{in: ev.in, before: l.state, lock: ev.lock, call: ev.call, err: ev.err}
	l.step(c)
	l.setGate(&c.action)
	l.informWitness(c)
	l.publish(c)
	l.setRunFunctions(c)
	l.send(c.action)
	l.setTimer(c)
	l.log(c)
}

// receive completes the input of an event.
func (l *loop) receive(ev *event) {
	switch {
	case ev.watched != nil:
		l.decodeWatchEvent(ev)
	case ev.in.Kind == core.Replied:
		l.noteFailure(ev)
		l.noteRejection(ev)
	case ev.in.Kind == core.Bar:
		l.rejected = ""
		l.unreadable = ""
	case ev.in.Kind == core.Drained:
		l.termEnded()
	}
	ev.in.Jitter = uint8(rand.Uint32())
	ev.in.Beats = l.beats(&ev.in)
}

// step calls Step and keeps what belongs to the new state.
func (l *loop) step(c *change) {
	c.after, c.action = l.core.Step(c.before, c.in)
	l.state = c.after
	if c.after.Learned != c.before.Learned {
		l.base = c.lock.Base()
		if c.after.Snap.Version < c.before.Snap.Version { // the version of a deleted lock stays
			l.rewound()
		}
	}
	if c.after.Drain.Overdue && !c.before.Drain.Overdue && l.term != nil {
		c.overdue = l.term.running()
	}
}

// log reports the change to logs, Events and metrics.
func (l *loop) log(c *change) {
	l.report.pass(c)
	l.le.handoverSince.Store(int64(l.report.durations.handoverSince()))
}

// noteFailure keeps why the last request failed, without its URL.
func (l *loop) noteFailure(ev *event) {
	err := ev.call.err
	if errors.Is(err, context.Canceled) {
		return // the elector does not need the answer any more
	}
	if err == nil && ev.call.op == core.Read && strings.Contains(l.failed, webhookDown) {
		return // only writes call webhooks
	}
	l.failed = ""
	if err != nil && ev.in.Result != core.Conflict {
		if u := new(url.Error); errors.As(err, &u) {
			err = u.Err
		}
		if l.failed = brief(err); errors.Is(err, context.DeadlineExceeded) {
			l.failed = "no response from the API server"
		}
	}
}

// noteRejection keeps why the API server rejected the last read, and the last write as holder until such a write succeeds. The last
// writes of a barred candidate do not count, because no later write would replace the reason.
func (l *loop) noteRejection(ev *event) {
	op := ev.call.op
	if op == core.Read {
		l.unreadable = ""
		if ev.in.Result == core.Refused {
			l.unreadable = brief(ev.call.err)
		}
		return
	}
	if l.state.Barred || op == core.SendRequest || ev.in.Result == core.Unknown || ev.in.Result == core.Conflict {
		return
	}
	l.rejected = ""
	if ev.in.Result == core.Refused {
		l.rejected = brief(ev.call.err)
	}
}

// beats returns the last result of KeyComparison for the key of the newest record, and makes the next call.
func (l *loop) beats(in *core.Input) bool {
	if !l.core.External {
		return false
	}
	record := l.state.Snap.Record
	if l.state.Shows(*in) {
		record = in.Snap.Record
	}
	return l.ask(record, false)
}

func (l *loop) setGate(a *core.Action) {
	if gate := l.le.config.Gate; gate != nil {
		gate.Set(l.state.Term, a.Gate)
	}
}

// setRunFunctions starts or cancels the run functions.
func (l *loop) setRunFunctions(c *change) {
	switch {
	case c.action.Run && l.term == nil:
		l.term = startTerm(l, l.state.Term)
	case !c.action.Run && l.term != nil:
		if l.term.ending == 0 {
			l.term.ending = max(1, c.in.Now.Mono)
		}
		l.term.cancel(fmt.Errorf("election %s: %w: %s", l.le.config.Name, ErrNotLeading, l.state.Why))
	}
}

// termEnded handles the return of the last run function.
func (l *loop) termEnded() {
	l.err = l.term.failure()
	l.term = nil
}

// setTimer sets the next wake-up.
func (l *loop) setTimer(c *change) {
	wake := c.action.Wake
	if l.term != nil {
		wake = min(wake, l.term.warnOfSlowDrain(c.in.Now.Mono))
	}
	l.timer.Reset(l.le.clock.mono().Until(wake))
	l.setBootAlarm(c.in.Now, wake)
}

// publish updates the view.
func (l *loop) publish(c *change) {
	s := &c.after
	if s.Phase != c.before.Phase {
		l.changed = time.Now()
	}
	v := view{
		status: Status{
			Phase: s.Phase.String(), Reason: string(s.Why), Since: l.changed, Term: s.Term, Known: s.Known != core.Unread,
			Object: l.base.Object, Default: s.Default, Unfit: s.Unfit, NoCoordinator: l.core.Uncoordinated(s, c.in.Now.Mono), BackingOff: l.core.BackingOff(s, c.in.Now.Mono), Rejected: l.rejected, Failed: l.failed,
		},
		running: s.Running, idle: s.Barred && !s.Running, bars: l.bars, acked: s.Own.Renewed, validity: s.Gate(),
	}
	if s.Known == core.Unread || s.Known.Outdated() {
		v.status.Unreadable = l.unreadable
	}
	if s.Snap.Exists && s.Snap.Content == record.Readable {
		v.showRecord(s, l.core.ActsUntil(s))
		for _, d := range s.Snap.LongDurations(l.core.Lease) {
			v.status.LongDuration = max(v.status.LongDuration, d.Recorded)
		}
	}
	old := l.le.view.Load()
	if *old == v {
		return
	}
	l.le.view.Store(&v)
	if changed := l.le.changed.Swap(nil); changed != nil {
		close(*changed)
	}
	c.published = true
	if v.status.Holder != old.status.Holder {
		c.newHolder = v.status.Holder
	}
}

// showRecord sets the fields that a readable record determines.
func (v *view) showRecord(s *core.State, actsUntil core.Instant) {
	snap := &s.Snap
	v.status.Holder = snap.Record.Holder
	v.status.HolderKey = snap.Record.Key
	v.status.Transitions = snap.Record.Transitions
	// The marker of a previous holder shows that the current holder is settling.
	if snap.Former() == "" {
		v.actsUntil = actsUntil
	}
}
