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
	call call                          // Replied
	news *k8sresourcelock.News         // what it says is not in yet
	sub  *k8sresourcelock.Subscription // takes the place of a watch
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
	stop    <-chan struct{} // nil once it was seen to be closed
	watch   *follower       // nil: the lock cannot be watched, or there is
	sub     *k8sresourcelock.Subscription
	news    []k8sresourcelock.News // taken from sub, and not gone by yet
	report  *reporter
}

func newLoop(le *LeaderElector, oneCycle bool) *loop {
	l := &loop{
		le: le, core: le.config.core(oneCycle),
		state:  core.State{Unfit: le.config.Fit != nil},
		events: make(chan *event), replies: make(chan *event, 1),
	}
	l.report = newReporter(le, &l.core)
	return l
}

// run returns when the core says Done and everything it started has ended, except
// run functions that outstayed the stop limit. Its frame, and those of its callers, stay
// on the stack for as long as the election lasts: what needs room is done elsewhere.
func (l *loop) run(ctx context.Context) error {
	// What the loop starts must outlive ctx: a release comes after the stop.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer l.finish(cancel)
	l.start(ctx, work)
	for l.state.Phase != core.Done {
		l.turn(work, l.next())
	}
	return l.outcome()
}

func (l *loop) start(ctx, work context.Context) {
	l.changed = time.Now()
	l.timer = time.NewTimer(0)
	l.stop = ctx.Done()
	l.startWatching(work)
	if l.le.config.Fit != nil {
		l.helpers.Go(func() { l.checkFitness(work) })
	}
	l.turn(work, l.defaultNow())
}

func (l *loop) finish(cancel context.CancelFunc) {
	l.stopWatching()
	l.timer.Stop()
	cancel()
	l.helpers.Wait()
}

// outcome is what run returns.
func (l *loop) outcome() error {
	if l.term == nil {
		return l.err
	}
	last := *l.le.view.Load()
	last.left = l.term.done
	l.le.view.Store(&last)
	return fmt.Errorf("election %s: %w", l.le.config.Name, ErrStuckDrain)
}

// next waits for whatever comes first.
func (l *loop) next() *event {
	if ev := l.nextNews(); ev != nil {
		return ev
	}
	select {
	case <-l.timer.C:
		return &event{}
	case ev := <-l.events:
		return ev
	case ev := <-l.replies:
		return ev
	case <-l.subscribed():
		l.news = l.sub.Next()
		return l.nextNews()
	case err := <-l.term.failures():
		l.err = err
		return eventOf(core.StepDown)
	case <-l.term.ended():
		return eventOf(core.Drained)
	case <-l.le.stepDown:
		return eventOf(core.StepDown)
	case <-l.le.poke:
		return l.defaultNow()
	case <-l.stop:
		l.stop = nil
		return eventOf(core.Stop)
	}
}

func eventOf(kind core.Kind) *event { return &event{in: core.Input{Kind: kind}} }

// defaultNow tells the default revision.
func (l *loop) defaultNow() *event {
	ev := eventOf(core.Tick)
	if d := l.le.deflt.Load(); d != nil {
		ev.in.Kind, ev.in.Default = core.DefaultChanged, *d
	}
	return ev
}

// turn is one pass, for which the loop waits. Its goroutine lends it the stack that it
// needs, some 30 KiB: the loop's own would keep them until the next pass, and a process
// can have a thousand idle electors.
func (l *loop) turn(ctx context.Context, ev *event) {
	if ev == nil {
		return
	}
	var pass sync.WaitGroup
	pass.Go(func() { l.pass(ctx, ev) })
	pass.Wait()
}

// pass stamps the time, steps, and makes true what the core wants. The gate comes
// first, because closing it must wait for nothing.
func (l *loop) pass(ctx context.Context, ev *event) {
	switch {
	case ev.news != nil:
		l.hear(ctx, ev)
	case ev.sub != nil:
		l.sub, l.watch = ev.sub, nil
	case ev.in.Kind == core.Replied:
		l.report.answered(l.state.Phase, ev.call)
	case ev.in.Kind == core.Drained:
		l.termEnded()
	}
	ev.in.Now = l.le.clock.Now()
	ev.in.Jitter = uint8(rand.Uint32())
	ev.in.Beats = l.beats(ev.in)
	before := l.state
	state, action := l.core.Step(before, ev.in)
	l.state = state
	if state.Learned != before.Learned {
		l.base = ev.lock
		if state.Snap.Exists && state.Snap.Version < before.Snap.Version {
			l.rewound()
		}
	}
	l.setTerm(before, ev)
	l.setGate(action)
	l.publish(before, ev.in)
	l.report.turn(&change{in: ev.in, before: before, after: state, action: action, lock: l.base})
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
