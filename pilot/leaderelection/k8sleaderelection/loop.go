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
	in    core.Input
	lock  k8sresourcelock.Snapshot
	call  call                          // Replied
	err   error                         // StepDown: the run function's
	news  *k8sresourcelock.News         // what it says is not in yet
	sub   *k8sresourcelock.Subscription // takes the place of a watch
	taken chan struct{}                 // closed once it was taken in; nil: nobody waits
}

// loop owns an elector's state while it runs. Watch, replies and run functions post
// events; nobody but the one goroutine that takes them in reads or writes the state.
type loop struct {
	le      *LeaderElector
	core    core.Config
	state   core.State
	base    k8sresourcelock.Snapshot // the object that state.Snap was decoded from
	acked   core.Instant
	changed time.Time
	term    *term
	which   Term  // the present one, as others know it
	err     error // of the last term that has ended

	inbox   inbox
	ended   func(error)
	unheed  func() bool // of the end of Run's context
	alarm   alarm
	asleep  alarm // by CLOCK_BOOTTIME: the same, should the machine sleep meanwhile
	helpers sync.WaitGroup
	values  context.Context // Run's, without its end: a release comes after the stop
	work    context.Context // of what runs beside the loop; nil: nothing does
	endWork context.CancelFunc
	watch   *follower // nil: the lock cannot be watched, or there is
	sub     *k8sresourcelock.Subscription
	report  *reporter

	dispatcher *Dispatcher
}

func newLoop(le *LeaderElector, oneCycle bool) *loop {
	l := &loop{
		le: le, core: le.config.core(oneCycle),
		state: core.State{Unfit: le.config.Fit != nil}, dispatcher: le.config.Dispatcher,
	}
	if l.dispatcher == nil {
		l.dispatcher = NewDispatcher(0)
	}
	l.alarm.ring = l.tick
	l.asleep.ring = l.awake
	return l
}

// begin starts the loop, and takes the first pass here and now. When the core has said
// Done, and everything the loop started has ended, except run functions that outstayed
// the stop limit, it calls ended.
func (l *loop) begin(ctx context.Context, ended func(error)) {
	l.ended = ended
	l.values = context.WithoutCancel(ctx)
	l.inbox.taking = true
	l.helpers.Add(1)
	l.start(ctx)
	if l.state.Phase != core.Done && l.empty() {
		l.helpers.Done()
		return
	}
	go l.takeOver()
}

func (l *loop) start(ctx context.Context) {
	l.report = newReporter(l.le, &l.core)
	l.changed = time.Now()
	l.unheed = context.AfterFunc(ctx, func() { l.give(stopping) })
	l.startWatching()
	if l.le.config.Fit != nil {
		work := l.background()
		l.helpers.Go(func() { l.checkFitness(work) })
	}
	l.le.loop.Store(l)
	l.le.clock.jumps.add(l)
	l.pass(l.defaultNow())
	if l.le.absent.Load() {
		l.pass(l.eventOf(absence))
	}
}

// background ends with the loop.
func (l *loop) background() context.Context {
	if l.work == nil {
		l.work, l.endWork = context.WithCancel(l.values)
	}
	return l.work
}

// finish ends all that the loop started.
func (l *loop) finish() {
	l.le.loop.Store(nil)
	l.unheed()
	l.stopWatching()
	l.le.clock.jumps.remove(l)
	if l.endWork != nil {
		l.endWork()
	}
	l.helpers.Wait()
	l.ended(l.outcome())
}

// outcome is how it ended.
func (l *loop) outcome() error {
	if l.term == nil {
		return l.err
	}
	last := *l.le.view.Load()
	last.left = l.term.left()
	l.le.view.Store(&last)
	return l.le.stuck()
}

// takeIn takes in what there is, until there is no more.
func (l *loop) takeIn() {
	for l.state.Phase != core.Done {
		s, ev := l.next()
		switch {
		case s == told:
			l.hearAll()
		case s != 0:
			l.pass(l.eventOf(s))
		case ev != nil:
			l.pass(ev)
		default:
			return
		}
	}
	// Nobody takes in any more: taking stays set. Whoever took in the last is one of those
	// that finish waits for.
	go l.finish()
}

// eventOf is what a signal says.
func (l *loop) eventOf(s signal) *event {
	switch s {
	case stopping:
		return &event{in: core.Input{Kind: core.Stop}}
	case poked:
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
	if d := l.le.deflt.Load(); d != nil {
		ev.in.Kind, ev.in.Default = core.DefaultChanged, *d
	}
	return ev
}

// pass stamps the time, steps, and makes true what the core wants. The gate comes
// first, because closing it must wait for nothing.
func (l *loop) pass(ev *event) {
	if ev.taken != nil {
		close(ev.taken)
	}
	switch {
	case ev.news != nil:
		l.hear(ev)
	case ev.sub != nil:
		l.sub, l.watch = ev.sub, nil
		l.give(told) // it may have been before there was anybody to hear
	case ev.in.Kind == core.Replied:
		l.report.answered(l.state.Phase, ev.call)
	case ev.in.Kind == core.Drained:
		l.termEnded()
	}
	ev.in.Now = l.le.clock.read()
	ev.in.Jitter = uint8(rand.Uint32())
	ev.in.Beats = l.beats(ev.in)
	before := l.state
	state, action := l.core.Step(before, ev.in)
	l.state = state
	if state.Learned != before.Learned {
		l.base = ev.lock.Base()
		if state.Snap.Version < before.Snap.Version { // the core gives an absent lock the version of before
			l.rewound()
		}
	}
	l.setTerm(before, ev)
	l.setGate(action)
	l.publish(before, ev.in)
	l.report.turn(&change{in: ev.in, before: before, after: state, action: action, lock: ev.lock, call: ev.call, err: ev.err})
	l.le.handover.Store(int64(l.report.spans.handoverSince()))
	l.setWork(action)
	if action.Op != core.NoOp {
		l.send(action)
	}
	l.setTimer(ev.in.Now, action.Wake)
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
func (l *loop) setWork(a core.Action) {
	switch {
	case a.Work && l.term == nil:
		l.term = startTerm(l, l.which)
	case !a.Work && l.term != nil:
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

// setTimer has the loop woken at that time; an election that has ended wants that never.
func (l *loop) setTimer(now Moment, wake core.Instant) {
	if wake == core.Never {
		l.dispatcher.unset(&l.alarm)
		l.sleepUntil(now, core.Never)
		return
	}
	l.dispatcher.set(&l.alarm, l.le.clock.mono().Until(wake))
	l.sleepUntil(now, wake)
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
		phase: s.Phase, why: s.Why, term: l.which, known: s.Known != core.Unread,
		deflt: s.Default, alive: s.Alive, unfit: s.Unfit, acked: l.acked, changed: l.changed,
	}
	if s.Phase == core.Leading || s.Phase == core.Draining && s.Drain.Lost == core.NotLost {
		v.cover = s.Cover
	}
	if s.Snap.Exists && s.Snap.Content == core.Readable {
		v.holder, v.key, v.count = s.Snap.Record.Holder, s.Snap.Record.Key, s.Snap.Record.Transitions
		v.record = l.report.shown(&s)
	}
	old := l.le.view.Load()
	if *old == v {
		return
	}
	l.le.view.Store(&v)
	if o, ok := l.le.config.Observer.(StatusObserver); ok {
		o.StatusChanged(l.le.config.Name)
	}
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
		token, _ := parseVersion(ev.lock.ResourceVersion) // as the codec did when it took the snapshot in
		l.which = Term{LockUID: string(ev.lock.UID), Transitions: t.Transitions, Token: token}
	}
}
