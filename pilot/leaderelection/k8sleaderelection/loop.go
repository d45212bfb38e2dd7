package k8sleaderelection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// event is an input on its way to the loop, with the lock as it was stored.
type event struct {
	in   core.Input
	lock k8sresourcelock.Snapshot
	call call // Replied
}

// loop owns an elector's state while it runs. Watch, replies and run functions post
// events; nobody else reads or writes the state.
type loop struct {
	le      *LeaderElector
	core    core.Config
	state   core.State
	base    k8sresourcelock.Snapshot // the object that state.Snap was decoded from
	acked   core.Instant
	changed time.Time
	term    *term
	which   Term  // the present one, as others know it
	err     error // of the last term that failed

	events  chan *event
	replies chan *event // room for the one call in flight, which must never block
	timer   *time.Timer
	helpers sync.WaitGroup
	watch   *follower // nil: the lock cannot be watched
	report  *reporter
}

func newLoop(le *LeaderElector, oneCycle bool) *loop {
	return &loop{
		le: le, core: le.config.core(oneCycle),
		state:  core.State{Unfit: le.config.Fit != nil},
		events: make(chan *event), replies: make(chan *event, 1),
		report: newReporter(le),
	}
}

// run returns when the core says Done and everything it started has ended, except
// run functions that outstayed the stop limit.
func (l *loop) run(ctx context.Context) error {
	// What the loop starts must outlive ctx: a release comes after the stop.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer l.helpers.Wait()
	defer cancel()
	l.changed = time.Now()
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	if w, ok := l.le.lock.(k8sresourcelock.Watchable); ok {
		l.watch = newFollower(l, w)
		l.helpers.Go(func() { l.watch.run(work) })
	}
	if l.le.config.Fit != nil {
		l.helpers.Go(func() { l.checkFitness(work) })
	}
	l.turn(work, &event{in: l.defaultNow()})
	for stop := ctx.Done(); l.state.Phase != core.Done; {
		ev := &event{}
		select {
		case <-l.timer.C:
		case ev = <-l.events:
		case ev = <-l.replies:
			l.report.answered(l.state.Phase, ev.call)
		case err := <-l.term.failures():
			ev.in.Kind = core.StepDown
			l.err = err
		case <-l.term.ended():
			ev.in.Kind = core.Drained
			l.termEnded()
		case <-l.le.stepDown:
			ev.in.Kind = core.StepDown
		case <-l.le.poke:
			ev.in = l.defaultNow()
		case <-stop:
			ev.in.Kind, stop = core.Stop, nil
		}
		l.turn(work, ev)
	}
	if l.term != nil {
		return fmt.Errorf("election %s: %w", l.le.config.Name, ErrStuckDrain)
	}
	return l.err
}

// defaultNow is the input that tells the default revision.
func (l *loop) defaultNow() core.Input {
	if d := l.le.deflt.Load(); d != nil {
		return core.Input{Kind: core.DefaultChanged, Default: *d}
	}
	return core.Input{Kind: core.Tick}
}

// turn is one pass: stamp the time, step, and make true what the core wants. The gate
// comes first, because closing it must wait for nothing.
func (l *loop) turn(ctx context.Context, ev *event) {
	ev.in.Now = l.le.clock.Now()
	ev.in.Jitter = uint8(rand.Uint32())
	ev.in.Beats = l.beats(ev.in)
	before := l.state
	state, action := l.core.Step(before, ev.in)
	l.state = state
	if state.Learned != before.Learned {
		l.base = ev.lock
		if l.watch != nil && state.Snap.Exists && state.Snap.Version < before.Snap.Version {
			l.watch.restart()
		}
	}
	l.setTerm(before, ev)
	l.setGate(action)
	l.publish(before, ev.in)
	l.report.turn(before, state, l.base)
	l.setWork(ctx, action)
	if action.Op != core.NoOp {
		l.send(ctx, action)
	}
	l.setTimer(action.Wake)
}

// beats asks the KeyComparisonFunc about the holder of the newest snapshot.
func (l *loop) beats(in core.Input) bool {
	if !l.core.External {
		return false
	}
	record := l.state.Snap.Record
	if in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK {
		record = in.Snap.Record
	}
	return record.Holder != "" && l.le.config.KeyComparison(record.Key)
}

func (l *loop) setGate(a core.Action) {
	if gate := l.le.config.Gate; gate != nil {
		gate.Set(l.which, a.Gate)
	}
}

// setWork starts the term's functions, or tells them to stop.
func (l *loop) setWork(ctx context.Context, a core.Action) {
	switch {
	case a.Work && l.term == nil:
		l.err = nil
		l.term = startTerm(ctx, l.le.config, l.which)
	case !a.Work && l.term != nil:
		l.term.cancel(fmt.Errorf("election %s: %w: %s", l.le.config.Name, ErrNotLeading, l.state.Why))
	}
}

// termEnded follows the return of the last run function.
func (l *loop) termEnded() {
	if l.term.err != nil {
		l.err = l.term.err
	}
	l.term = nil
	if stopped := l.le.config.Callbacks.OnStoppedLeading; stopped != nil && !l.core.OneCycle {
		stopped()
	}
}

func (l *loop) setTimer(wake core.Instant) {
	if wake == core.Never || l.state.Phase == core.Done {
		l.timer.Stop()
		return
	}
	l.timer.Reset(max(0, l.le.clock.Now().Mono.Until(wake)))
}

// publish shows others where the loop stands.
func (l *loop) publish(before core.State, in core.Input) {
	s := l.state
	if in.Kind == core.Replied && s.Cover != before.Cover && s.Cover != (core.Cover{}) {
		l.acked = before.Flight.Sent.Mono
	}
	if s.Phase != before.Phase {
		l.changed = time.Now()
	}
	v := view{
		phase: s.Phase, why: s.Why, term: l.which, known: s.Known,
		deflt: s.Default, alive: s.Alive, unfit: s.Unfit, acked: l.acked, changed: l.changed,
	}
	if s.Phase == core.Leading || s.Phase == core.Draining && !s.Lost {
		v.cover = s.Cover
	}
	if s.Snap.Exists && s.Snap.Content == core.Readable {
		v.holder, v.key, v.count = s.Snap.Record.Holder, s.Snap.Record.Key, s.Snap.Record.Transitions
	}
	old := l.le.view.Load()
	if *old == v {
		return
	}
	l.le.view.Store(&v)
	if f := l.le.config.Callbacks.OnNewLeader; f != nil && v.holder != "" && v.holder != old.holder {
		l.helpers.Go(func() { f(v.holder) })
	}
}

// setTerm notes the present term in the form that others get. Its token is the version
// of the object that a fence goes by, which of a lock of two objects is one of them.
func (l *loop) setTerm(before core.State, ev *event) {
	t := l.state.Term
	switch t {
	case before.Term:
	case core.Term{}:
		l.which = Term{}
	default:
		uid, version := ev.lock.Fence()
		token, _ := parseVersion(version) // as the codec did when it took the snapshot in
		l.which = Term{LockUID: string(uid), Transitions: t.Transitions, Token: token}
	}
}
