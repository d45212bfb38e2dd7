package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var (
	// ErrNotLeading is the cause of a run function's context that has ended.
	ErrNotLeading = errors.New("no longer leading")
	// ErrStuckDrain is returned when run functions outstayed their limit: StopLimit after a
	// stop, DrainLimit after the end of the cover. They are still running; the lock was not
	// given away and lapses.
	ErrStuckDrain = errors.New("run functions did not return within their limit")
	// ErrRunning is returned by a second Campaign beside a first, or beside a Run. A second
	// Run logs it.
	ErrRunning = errors.New("the elector is running already")
)

// LeaderElector is one candidate of one election.
type LeaderElector struct {
	config  LeaderElectionConfig
	core    core.Config // but for OneCycle
	lock    k8sresourcelock.Versioned
	codec   codec.Codec
	clock   *Clock
	exit    func(code int)
	running atomic.Bool
	view    atomic.Pointer[view]
	absent  atomic.Bool          // the coordinator is known to be gone
	loop    atomic.Pointer[loop] // nil unless it runs
	former  *core.State          // what a Successor's run before this one, in whichever mode, knew in the end
	// handover is the core.Instant since which a handover to this process, or by it, goes on; 0: none does.
	handover atomic.Int64
}

// view is the part of the loop's state that other goroutines read. It is replaced, never changed.
type view struct {
	phase           core.Phase
	why             core.Reason
	term            Term
	validity        core.Validity
	known           bool
	holder          string
	key             string
	transitions     int
	defaultRevision DefaultRevision
	running         bool
	drained         <-chan struct{} // closed once functions that were left behind have ended
	unfit           bool
	acked           core.Instant
	changed         time.Time
	record          recordView
}

// recordView is decoded from the lock, beside who holds it.
type recordView struct {
	actsUntil core.Instant // what its holder is believed to act until; zero: it does not act
	lease     time.Duration
	handsOver bool
	hold      Hold
}

// NewLeaderElector checks the configuration and starts nothing.
func NewLeaderElector(lec LeaderElectionConfig) (*LeaderElector, error) {
	if err := lec.Validate(); err != nil {
		return nil, err
	}
	lec = lec.withDefaults()
	le := &LeaderElector{
		config: lec,
		core:   lec.core(),
		lock:   versioned(lec.Lock),
		codec:  codec.New(),
		clock:  lec.Clock,
		exit:   os.Exit,
	}
	if le.clock == nil {
		le.clock = NewClock(nil)
	}
	le.view.Store(&view{})
	if lec.WatchDog != nil {
		lec.WatchDog.SetLeaderElection(le)
	}
	return le, nil
}

// RunOrDie runs one cycle, and panics on a configuration that is not valid.
func RunOrDie(ctx context.Context, lec LeaderElectionConfig) {
	le, err := NewLeaderElector(lec)
	if err != nil {
		panic(err)
	}
	le.Run(ctx)
}

// Run takes part for one cycle: it returns when ctx has ended or the term was lost,
// after the run functions have returned and, with ReleaseOnCancel, the lock was given
// up. What Campaign would return is logged. If functions of an earlier run are still
// there, it takes part when they have returned.
func (le *LeaderElector) Run(ctx context.Context) {
	err := le.run(ctx, oneCycle)
	if err != nil {
		le.logger().Error("election failed", "election", le.config.Name, "err", err)
	}
	// A second Run must not tell the first one's user that it has stopped. A run function's error may wrap that of another elector.
	if stopped := le.config.Callbacks.OnStoppedLeading; stopped != nil && errors.Unwrap(err) != ErrRunning { //nolint:errorlint // not of a function
		stopped()
	}
}

// Campaign takes part until ctx ends, term after term. It returns once everything it
// started has ended, with the errors of run functions that failed in the last term,
// or ErrStuckDrain. If functions of an earlier run are still there, it takes part when
// they have returned.
func (le *LeaderElector) Campaign(ctx context.Context) error { return le.run(ctx, campaigning) }

// Observe follows the lock until ctx ends, and writes nothing to it. A Successor's Campaign begins with what it has seen: who
// led by the lock before may act still, and the record may not tell so any more. Its errors are those of Campaign.
func (le *LeaderElector) Observe(ctx context.Context) error { return le.run(ctx, observing) }

// runMode is how an elector runs.
type runMode uint8

const (
	campaigning runMode = iota // term after term
	oneCycle
	observing
)

func (le *LeaderElector) run(ctx context.Context, mode runMode) error {
	if !le.running.CompareAndSwap(false, true) {
		return fmt.Errorf("election %s: %w", le.config.Name, ErrRunning)
	}
	err := le.awaitDrained(ctx)
	if err == nil {
		err = newLoop(le, mode).run(ctx)
	}
	le.running.Store(false) // not if a callback has panicked: what ran then may not have ended
	return err
}

// awaitDrained waits for run functions of an earlier run: in a new term they would be beside those
// that it starts, and its gate open to them.
func (le *LeaderElector) awaitDrained(ctx context.Context) error {
	drained := le.Drained()
	select {
	case <-drained:
		return nil
	default:
	}
	le.logger().Warn("waiting for run functions of an earlier run to return", "election", le.config.Name)
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return le.stuck()
	}
}

// Drained returns a channel that is closed once no run function of an ended Run or Campaign
// is running. It is closed already unless the last one has ended with ErrStuckDrain. Ask again
// after each run: a channel is about the runs that have ended before the call.
func (le *LeaderElector) Drained() <-chan struct{} {
	if drained := le.view.Load().drained; drained != nil {
		return drained
	}
	return alreadyDrained
}

var alreadyDrained = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func (le *LeaderElector) stuck() error {
	return fmt.Errorf("election %s: %w", le.config.Name, ErrStuckDrain)
}

// IsLeader reports whether this process may act now: it asks the clock, so that a
// leader cut off from the API server stops being one on time.
func (le *LeaderElector) IsLeader() bool {
	return le.view.Load().validity.Left(le.clock.Now().core()) > 0
}

// GetLeader returns the identity in the record last seen; empty when there is none.
func (le *LeaderElector) GetLeader() string { return le.view.Load().holder }

// SetCoordinatorAbsent tells a Coordinated elector whether the election's coordinator is known to be gone, as
// of now. After three lease durations of that the rules without one count. It does not block and may be called at any
// time, before Run too.
func (le *LeaderElector) SetCoordinatorAbsent(absent bool) {
	if le.absent.Swap(absent) != absent {
		le.signal(absence)
	}
}

// Refresh makes the elector ask its DefaultRevision and its KeyComparison again at once. It does not block and may be
// called at any time: one that does not run yet asks when it starts.
func (le *LeaderElector) Refresh() { le.signal(reevaluate) }

// StepDown ends the present term, if there is one: drain, release, and then no campaign for
// one RetryPeriod, so that another candidate gets its chance. For each further step-down in a
// row that time is doubled, up to 32 RetryPeriods; a term of more than a lease ends the row.
// It does not block.
func (le *LeaderElector) StepDown() { le.signal(stepsDown) }

func (le *LeaderElector) signal(s signal) {
	if l := le.loop.Load(); l != nil {
		l.signal(s)
	}
}

// DrainLimit is how long run functions may take to return once a cover has ended: the
// configured limit or, without one, the longest for which two of ours never act at once.
func (le *LeaderElector) DrainLimit() time.Duration { return le.config.DrainLimit }

// Hold is an operator's order that the holder stays, whatever its rank; the zero Hold is none. Its fields:
//
//	Holder      string // who stays, in the term with that many Transitions
//	Transitions int
//	Seconds     int    // for how long, as each reader counts from when it first saw the hold
//	Requester   string // who gave the order
//	Reason      string // pause or transfer
//	Note        string // the operator's reason, in words
type Hold = core.Hold

// Status is a picture of an elector: its phase and term, and the record last seen.
type Status struct {
	// Phase is following, settling, leading, draining, releasing or done.
	Phase string
	// Reason is why it entered that phase, in one word.
	Reason string
	// Since is when it did, by the wall clock.
	Since time.Time
	// Leading: this process may act now.
	Leading bool
	// ValidFor is for how much longer, without another write.
	ValidFor time.Duration
	// Term is the present one; zero when there is none.
	Term Term
	// Known is false until the lock was read once.
	Known bool
	// Holder, HolderKey and Transitions are those of the record last seen.
	Holder, HolderKey string
	Transitions       int
	// Acting: the holder acts, as far as the record tells: it was not only nominated, it does not wait for an earlier
	// one, and its lease has not run out.
	Acting bool
	// LeaseDuration is the record's.
	LeaseDuration time.Duration
	// HandsOver: the holder passes the lock on when it is asked.
	HandsOver bool
	// Hold is the operator's order about the present term that keeps the holder there; zero when there is none.
	Hold Hold
	// Unfit: the Fit function says that this process should not lead.
	Unfit bool
	// Default is the default revision by which this elector ranks.
	Default DefaultRevision
	// HandoverWait is the age of a handover that is due and not done. Of a follower it counts from when it had a reason to
	// ask for the lock, because it outranks the leader or the leader is unfit; of the leader, from when it accepted a
	// request. Zero: no handover is due.
	HandoverWait time.Duration
}

// Status returns a consistent picture of the elector.
func (le *LeaderElector) Status() Status {
	v := le.view.Load()
	now := le.clock.Now().core()
	left := max(0, v.validity.Left(now))
	var handover time.Duration
	if since := core.Instant(le.handover.Load()); since != 0 && v.phase != core.Done {
		handover = max(0, since.Until(now.Mono))
	}
	return Status{
		Phase: v.phase.String(), Reason: string(v.why), Since: v.changed,
		Leading: left > 0, ValidFor: left, Term: v.term,
		Unfit: v.unfit, Known: v.known, Holder: v.holder, HolderKey: v.key, Transitions: v.transitions,
		Default:      v.defaultRevision,
		HandoverWait: handover,
		Acting:       now.Mono < v.record.actsUntil, LeaseDuration: v.record.lease, HandsOver: v.record.handsOver, Hold: v.record.hold,
	}
}

func (le *LeaderElector) logger() *slog.Logger {
	if le.config.Logger != nil {
		return le.config.Logger
	}
	return slog.Default()
}
