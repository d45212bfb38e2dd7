package k8sleaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/atomic"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/hooks"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var (
	// ErrNotLeading is the cause of the context of a run function after the end of its term.
	ErrNotLeading = errors.New("no longer leading")
	// ErrStuckDrain is returned if run functions exceeded their limit: StopLimit after a stop, DrainLimit after the end
	// of the validity. They are still running. The lock was not released; its lease expires.
	ErrStuckDrain = errors.New("run functions did not return within their limit")
	// ErrRunning is returned by Campaign if the elector is running. A second Run logs it.
	ErrRunning = errors.New("elector is already running")
)

// LeaderElector is one candidate of one election. Its methods may be called concurrently.
type LeaderElector struct {
	config  LeaderElectionConfig
	core    core.Config // without OneCycle
	lock    k8sresourcelock.Lock
	clock   *Clock
	exit    func(code int)
	hooks   hooks.Queue // calls code of the caller that a step must not wait for
	metric  func() SwitchMetric
	running atomic.Bool
	view    atomic.Pointer[view]
	absent  atomic.Bool          // see SetCoordinatorAbsent
	unfit   atomic.Bool          // see SetUnfit
	bars    atomic.Uint64        // number of changes by SetBarred; odd: barred
	loop    atomic.Pointer[loop] // nil if the elector is not running
	// handoverSince is the core.Instant at which the pending handover began; zero if no handover is pending.
	handoverSince atomic.Int64
	changed       atomic.Pointer[chan struct{}] // see Changed; nil if no caller waits
}

// view is the part of the loop's state that other goroutines read. It is replaced, never modified.
type view struct {
	status    Status // without the fields that depend on the time
	validity  core.Validity
	actsUntil core.Instant    // until when the holder may act; zero: it does not act
	running   bool            // run functions have not all returned
	idle      bool            // see Idle
	bars      uint64          // changes by SetBarred that it shows
	drained   <-chan struct{} // closed when functions that exceeded their limit have returned
	acked     core.Instant    // when the last write that was seen stored was sent
}

// NewLeaderElector validates the configuration and returns an elector. It starts nothing. Run and Campaign validate the fields of
// the lock.
func NewLeaderElector(lec LeaderElectionConfig) (*LeaderElector, error) {
	if err := lec.validate(); err != nil {
		return nil, err
	}
	lec = lec.withDefaults()
	le := &LeaderElector{
		config: lec,
		core:   lec.core(),
		lock:   complete(lec.Lock),
		clock:  lec.Clock,
		exit:   os.Exit,
		metric: lazyMetric(),
	}
	le.hooks.Do(func() { le.metric().Off(lec.Name) })
	le.hooks.Wait(lec.RetryPeriod) // a follower has the metric from its creation on, as in client-go
	if le.clock == nil {
		le.clock = NewClock(nil)
	}
	le.view.Store(&view{status: Status{Phase: core.Following.String()}})
	if lec.WatchDog != nil {
		lec.WatchDog.SetLeaderElection(le)
	}
	return le, nil
}

// RunOrDie calls Run of a new elector. It panics if the configuration is invalid.
func RunOrDie(ctx context.Context, lec LeaderElectionConfig) {
	le, err := NewLeaderElector(lec)
	if err != nil {
		panic(err)
	}
	le.Run(ctx)
}

// Run takes part in the election for one cycle. It returns when ctx is done or the term was lost, after the run functions
// have returned and, with ReleaseOnCancel, the lock was released. It logs the error that Campaign would return. If run
// functions of an earlier run have not returned, Run first waits for them.
func (le *LeaderElector) Run(ctx context.Context) {
	err := le.run(ctx, true)
	if err != nil {
		le.logger(ctx).Error("election failed", "election", le.config.Name, "err", err)
	}
	// A second Run must not call OnStoppedLeading, because the first one continues. errors.Is would also match the error
	// of another elector that a run function returned.
	if stopped := le.config.Callbacks.OnStoppedLeading; stopped != nil && errors.Unwrap(err) != ErrRunning { //nolint:errorlint // see above
		le.hooks.GoAfter(stopped)
	}
	le.awaitHooks(ctx)
}

// Campaign takes part in the election until ctx is done, term after term. It returns when everything that it started has
// ended. The error has the errors of run functions that failed in the last term, or is ErrStuckDrain or ErrRunning. If
// run functions of an earlier run have not returned, Campaign first waits for them.
func (le *LeaderElector) Campaign(ctx context.Context) error {
	err := le.run(ctx, false)
	le.awaitHooks(ctx)
	return err
}

// awaitHooks waits until the callbacks have returned and everything is reported, for at most StopLimit.
func (le *LeaderElector) awaitHooks(ctx context.Context) {
	if !le.hooks.Wait(le.config.StopLimit) {
		le.logger(ctx).Error("elector ended before a callback, Logger, EventRecorder or Observer returned", "election", le.config.Name, "limit", le.config.StopLimit)
	}
}

func (le *LeaderElector) run(ctx context.Context, oneCycle bool) error {
	if !le.running.CompareAndSwap(false, true) {
		return fmt.Errorf("election %s: %w", le.config.Name, ErrRunning)
	}
	err := le.lock.Validate()
	if err != nil {
		err = fmt.Errorf("election %s: %w", le.config.Name, err)
	} else {
		err = le.AwaitDrained(ctx)
	}
	if err == nil {
		err = newLoop(le, oneCycle).run(ctx)
	}
	le.running.Store(false) // not after a panic: run functions may not have returned
	return err
}

// AwaitDrained waits until no run function of an ended Run or Campaign is running. The gate of a new term would admit
// their writes. It returns ErrStuckDrain if ctx ends first.
func (le *LeaderElector) AwaitDrained(ctx context.Context) error {
	drained := le.view.Load().drained
	if drained == nil {
		return nil
	}
	select {
	case <-drained:
		return nil
	default:
	}
	le.logger(ctx).Warn("waiting for run functions of an earlier run to return", "election", le.config.Name)
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return le.stuck()
	}
}

func (le *LeaderElector) stuck() error {
	return fmt.Errorf("election %s: %w", le.config.Name, ErrStuckDrain)
}

// IsLeader reports whether this process may act now. It reads the clock, so it returns false at the end of the validity
// even if the API server cannot be reached.
func (le *LeaderElector) IsLeader() bool {
	return le.view.Load().validity.Left(le.clock.Now()) > 0
}

// GetLeader returns the holder in the last known record, or "" if there is none.
func (le *LeaderElector) GetLeader() string { return le.view.Load().status.Holder }

// SetCoordinatorAbsent sets whether the coordinator of a Coordinated election is absent. While it is absent, this candidate
// ignores it and acquires the lock by rank. The method does not block and may be called before Run.
func (le *LeaderElector) SetCoordinatorAbsent(absent bool) {
	if le.absent.Swap(absent) != absent {
		le.signal(coordinatorChanged)
	}
}

// SetUnfit sets whether this process is unfit to lead, as FitnessCheck does with each result. It does not block and may be called
// before Run.
func (le *LeaderElector) SetUnfit(unfit bool) {
	if le.unfit.Swap(unfit) != unfit {
		le.signal(fitnessChanged)
	}
}

// SetBarred bars this candidate from the lock, or ends that. A barred candidate observes the lock and does not campaign. A leader
// drains and releases the lock. SetBarred does not block and may be called before Run.
func (le *LeaderElector) SetBarred(barred bool) {
	if n := le.bars.Load(); isBarred(n) != barred && le.bars.CompareAndSwap(n, n+1) {
		le.signal(barChanged)
	}
}

func isBarred(bars uint64) bool { return bars%2 == 1 }

// Idle reports whether the elector is barred, and all run functions have returned and all admitted writes were answered. It returns
// false until the elector has processed SetBarred.
func (le *LeaderElector) Idle() bool {
	v := le.view.Load()
	return v.idle && v.bars == le.bars.Load()
}

// Refresh makes the elector call DefaultRevision and KeyComparison again. It does not block and may be called at any time.
func (le *LeaderElector) Refresh() { le.signal(refresh) }

// StepDown ends the current term: the leader drains, releases the lock, and does not campaign for RetryPeriod, so that
// another candidate can lead. The pause doubles with each step-down, up to 32 RetryPeriods. It starts again at RetryPeriod
// after a term that was longer than a lease. StepDown does not block. It has no effect on a follower.
func (le *LeaderElector) StepDown() { le.signal(stepDown) }

func (le *LeaderElector) signal(s signal) {
	if l := le.loop.Load(); l != nil {
		l.signal(s)
	}
}

// StopLimit returns StopLimit of the configuration, or its default.
func (le *LeaderElector) StopLimit() time.Duration { return le.config.StopLimit }

// Values of Status.Phase that callers compare.
const (
	PhaseFollowing = core.NameFollowing
	PhaseLeading   = core.NameLeading
	PhaseDraining  = core.NameDraining
)

// Status is a snapshot of the state of an elector. Its JSON omits what the lock object shows.
type Status struct {
	// Phase is following, settling, leading, draining, releasing or done.
	Phase string `json:"phase,omitempty"`
	// Reason is a word for why the elector entered the phase.
	Reason string `json:"reason,omitempty"`
	// Since is when it entered the phase, by the wall clock.
	Since time.Time `json:"since,omitzero"`
	// Leading is set if this process may act now.
	Leading bool `json:"leading"`
	// ValidFor is the remaining validity. It is zero if Leading is not set.
	ValidFor time.Duration `json:"-"`
	// Term is the current term of this process, or zero.
	Term Term `json:"term,omitzero"`
	// Known is set if the lock was read.
	Known bool `json:"-"`
	// Object is the lock object that was last seen, without managedFields. It is nil if the object does not exist, and for a lock
	// of the caller. It must not be modified.
	Object runtime.Object `json:"-"`
	// Holder, HolderKey and Transitions are the values in the last known record.
	Holder      string `json:"-"`
	HolderKey   string `json:"-"`
	Transitions int    `json:"-"`
	// Acting is set if the holder may act, according to the record: it was not only nominated, it does not wait for a
	// previous leader, and its lease has not expired.
	Acting bool `json:"-"`
	// Unfit is set if FitnessCheck failed.
	Unfit bool `json:"unfit,omitempty"`
	// BackingOff is set while this process does not campaign after a step-down.
	BackingOff bool `json:"backingOff,omitempty"`
	// NoCoordinator is set if a Coordinated election runs as without a coordinator.
	NoCoordinator bool `json:"-"`
	// Rejected is why the API server rejected the last write of this process as holder, for example a missing permission. It is
	// empty after a successful write, and while SetBarred bars this process.
	Rejected string `json:"rejected,omitempty"`
	// Unreadable is why the API server rejects to read the lock, while this process has to read it: it never did, or the lock has changed.
	Unreadable string `json:"-"`
	// Failed is why the last request for the lock failed. It is empty after a conflict, and after a response
	// that is not an error, except that a read keeps that a webhook does not respond.
	Failed string `json:"failed,omitempty"`
	// Default is the default revision that this elector knows.
	Default DefaultRevision `json:"defaultRevision"`
	// DroppedReports is the number of log entries, Events and metrics that were dropped because the Logger, the EventRecorder or the
	// Observer did not return.
	DroppedReports uint64 `json:"droppedReports,omitempty"`
	// LongDuration is the longest duration on the lock that is reported as too long, or zero.
	LongDuration time.Duration `json:"-"`
	// HandoverWait is the age of a pending handover, or zero. For a follower it counts from when it outranked the leader
	// or the leader became unfit. For a leader it counts from when it accepted a request.
	HandoverWait time.Duration `json:"-"`
}

// Status returns the current status.
func (le *LeaderElector) Status() Status {
	v := le.view.Load()
	now := le.clock.Now()
	s := v.status
	s.ValidFor = max(0, v.validity.Left(now))
	s.Leading = s.ValidFor > 0
	s.Acting = now.Mono < v.actsUntil
	s.DroppedReports = le.hooks.Dropped()
	if since := core.Instant(le.handoverSince.Load()); since != 0 && s.Phase != core.Done.String() {
		s.HandoverWait = max(0, since.Until(now.Mono))
	}
	return s
}

// Changed returns a channel that is closed when Status returns another value than now, apart from the passing of time.
func (le *LeaderElector) Changed() <-chan struct{} {
	next := make(chan struct{})
	for !le.changed.CompareAndSwap(nil, &next) {
		if now := le.changed.Load(); now != nil {
			return *now
		}
	}
	return next
}

// logger logs to Logger of the configuration, or to the logger of ctx, as klog and controller-runtime store it, or to slog.Default.
func (le *LeaderElector) logger(ctx context.Context) *slog.Logger {
	to := le.config.Logger
	if to == nil {
		to = logr.FromContextAsSlogLogger(ctx)
	}
	return le.hooks.Logger(cmp.Or(to, slog.Default()))
}
