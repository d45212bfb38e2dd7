package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// JitterFactor distributes polls over time. The pause before a poll is RetryPeriod × (1 + JitterFactor × r), where r is a
// random number in [0,1). RenewDeadline must be greater than RetryPeriod × JitterFactor.
const JitterFactor = 1.2

// maxClockDrift is the maximum relative error of clock rates. Clocks of computers stay below 0.0005, even without NTP.
const maxClockDrift = 0.02

// KeyComparisonFunc reports whether this candidate outranks a live holder with existingKey in its record, and may preempt
// it. One goroutine calls it, after every input of the elector. If it does not return, the elector continues with the last result for
// the key, or false. Call LeaderElector.Refresh when its result may have changed. If nil, this candidate outranks no other.
type KeyComparisonFunc func(existingKey string) bool

// LeaderCallbacks are called when a term begins or ends and when the holder changes. Each call has its own goroutine, so that a callback
// delays neither the elector nor another callback, and calls may overlap. Run and Campaign wait for them for at most StopLimit.
// A panic ends the process.
type LeaderCallbacks struct {
	// OnStartedLeading is a run function. Its context ends with the term. The lock is released after it has
	// returned. If it returns early, the term continues. If it is set, Events about terms have the text of client-go:
	// "became leader" and, after an orderly end, "stopped leading". Otherwise they also have the reason.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called by Run before it returns, even if this process never led, and by Campaign after each
	// term.
	OnStoppedLeading func()
	// OnNewLeader is called when the record has a new holder, which may be this candidate. It is not called when the
	// lock becomes free.
	OnNewLeader func(identity string)
}

// LeaderElectionConfig configures one candidate of one election. Lock, LeaseDuration, RenewDeadline and RetryPeriod are
// required. Up to Name, the fields have the names of client-go, and KeyComparison has the name of Istio's fork.
type LeaderElectionConfig struct {
	// Lock stores the record. It also has the identity and the key of the candidate.
	Lock k8sresourcelock.Interface

	// LeaseDuration is written into the record, in whole seconds, at least one. A follower may acquire the lock when
	// the record was unchanged for its own or the recorded duration, the longer of both. A recorded duration counts up
	// to an hour, or up to ten times the own duration if that is longer.
	LeaseDuration time.Duration
	// RenewDeadline is the validity: how long a leader may act, counted from when its last acknowledged write was sent.
	RenewDeadline time.Duration
	// RetryPeriod is the time between the writes of a leader, and between polls.
	RetryPeriod time.Duration

	// KeyComparison lets this candidate preempt a live holder. It is not used if Ranked is set.
	KeyComparison KeyComparisonFunc
	// Callbacks are optional.
	Callbacks LeaderCallbacks
	// WatchDog, if set, reports the health of this elector.
	WatchDog *HealthzAdaptor
	// ReleaseOnCancel releases the lock after the drain, so that the next leader does not wait for the lease to expire.
	ReleaseOnCancel bool
	// Name is the name of the election in metrics and logs. The default is Lock.Describe().
	Name string

	// RunFunctions run while this process leads, concurrently with OnStartedLeading. If one returns an error during a
	// term, the leader steps down (see StepDown). If one returns nil, the term continues.
	RunFunctions []func(ctx context.Context) error
	// RunFunctionNames are the names of RunFunctions in logs, in the same order. The default is the Go names.
	RunFunctionNames []string
	// Ranked ranks candidates by their keys as revisions (see Outranks) and DefaultRevision. A candidate that outranks
	// the leader requests a handover. It preempts a leader that cannot hand over, such as istiod.
	Ranked bool
	// DefaultRevision returns the current default revision. A goroutine calls it at startup and on each Refresh. The elector ignores a
	// result that is not Synced. If the function does not return, the elector continues with the last result.
	DefaultRevision func() DefaultRevision
	// SyncWait is how long a Ranked candidate waits after its start for DefaultRevision to be Synced, before it acquires
	// a lock. Otherwise a candidate of higher rank could not request a handover: it would preempt and settle for a
	// lease. If zero, the candidate does not wait.
	SyncWait time.Duration
	// Coordinated leaves the choice of the leader to a coordinator: Kubernetes (KEP-4355) or package coordination. It
	// requires a LeaseLock. The candidate waits until it is nominated, and hands over to the preferred holder of the
	// Lease. If no coordinator chose a leader for three lease durations, or it is absent (see SetCoordinatorAbsent),
	// candidates acquire the lock as without a coordinator.
	Coordinated bool
	// DrainLimit is how long run functions may take to return after the end of the validity or the loss of the record.
	// The default is the maximum:
	// LeaseDuration × 0.98/1.02 − RenewDeadline, because the rates of clocks may differ by 2 %. At 30, 15 and 7.5 s it is 13.8 s.
	DrainLimit time.Duration
	// StopLimit is how long run functions may take to return after a stop, a step-down or an accepted handover, while
	// the lease is renewed. The default is twice LeaseDuration, at most 15 s, because a Pod has 30 s to stop.
	StopLimit time.Duration
	// PeerGrace is added to the lease of a previous holder without a valid marker, which may be istiod or client-go.
	// This candidate does not act earlier. At 30, 15 and 7.5 s, an istiod that is cut off during a renewal needs 15 s,
	// and client-go needs RetryPeriod + 2×RenewDeadline − LeaseDuration = 7.5 s. The default is 0.
	PeerGrace time.Duration
	// PreemptImmediately skips settling after a preemption, as Istio's elector does. Then two candidates may act at the
	// same time.
	PreemptImmediately bool
	// Gate, if set, rejects writes outside the validity. The elector sets it.
	Gate Gate
	// Clock measures the validity. Gate must use the same Clock. The default is a new Clock.
	Clock *Clock
	// FitnessCheck returns an error if this process should not lead. The elector calls it once per RetryPeriod, and a
	// check that takes longer counts as an error. An unfit follower does not campaign, and neither does a follower before
	// its first check. An unfit leader keeps the lock, marks itself unfit, and hands over to the first candidate that
	// requests it. At its end, Run waits for a running check for at most StopLimit.
	FitnessCheck func(ctx context.Context) error
	// OnStuckDrain is called once per term if the run functions exceed their limit. The lock is not renewed or
	// released then. It expires, and another candidate may lead while the functions are still running.
	OnStuckDrain func()
	// ExitOnStuckDrain ends the process with exit code 3 in that case, after OnStuckDrain returned, but at the latest after
	// RetryPeriod. Only the end of the process stops such functions.
	ExitOnStuckDrain bool
	// Witness, if set, releases the lock after this process has ended without a release, for example by a panic. It supports the
	// locks that k8sresourcelock.New returns. Other locks expire.
	Witness Witness
	// Shared, if set, limits the concurrent calls of all electors that use it.
	Shared *k8sresourcelock.Shared
	// Observer, if set, receives phases and calls for metrics.
	Observer Observer
	// Logger receives a line per phase change and per new problem. The default is the logr.Logger in the
	// context of Run or Campaign, which klog and controller-runtime also use, and otherwise slog.Default.
	//
	// One goroutine calls Logger, Observer, the metrics and the EventRecorder of the lock, in order. If one of them does not return, the
	// elector continues: the last 256 reports wait, older ones are dropped and counted (Status.DroppedReports). Run and Campaign
	// wait for the reports for at most StopLimit before they return.
	Logger *slog.Logger
}

// Gate rejects the writes of run functions outside the validity. Package gate has an implementation.
type Gate interface {
	// Set admits writes of the term until end. The zero Validity closes the gate. Set must not block.
	Set(term Term, end Validity)
	// Drain closes the gate for the current term and returns when all admitted writes were answered or timed out.
	Drain()
}

// Term is an uninterrupted period of leadership. The zero Term is none.
type Term = core.Term

// Validate returns an error that lists all mistakes of the configuration and how to correct them.
func (c LeaderElectionConfig) Validate() error {
	return errors.Join(c.validate(), c.validateLock())
}

// validateLock validates the fields of the lock. NewLeaderElector does not, because client-go's does not either: a caller may
// set them until Run.
func (c LeaderElectionConfig) validateLock() error {
	if c.Lock == nil {
		return nil
	}
	return complete(c.Lock).Validate()
}

func (c LeaderElectionConfig) validate() error {
	if c.Lock == nil {
		return errors.New("no Lock: set the lock of the election")
	}
	identity := c.Lock.Identity()
	if identity == "" {
		return errors.New("Lock identity is empty") //nolint:staticcheck // the text of client-go
	}
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, record.ValidateIdentity(identity))
	if c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0 {
		add("LeaseDuration %v: must be whole seconds, at least one", c.LeaseDuration)
	}
	if c.RetryPeriod <= 0 {
		add("RetryPeriod %v: must be greater than zero", c.RetryPeriod)
	}
	if _, seconds := c.Lock.(*k8sresourcelock.ConfigMapLock); seconds && c.RetryPeriod > 0 && c.RetryPeriod < time.Second {
		add("RetryPeriod %v with a %T: must be at least a second, because the lock stores its times in seconds. Use a LeaseLock or lengthen RetryPeriod.",
			c.RetryPeriod, c.Lock)
	}
	if c.RenewDeadline <= time.Duration(JitterFactor*float64(c.RetryPeriod)) {
		add("RenewDeadline %v must be greater than RetryPeriod %v times %v: lengthen RenewDeadline or shorten RetryPeriod",
			c.RenewDeadline, c.RetryPeriod, JitterFactor)
	}
	if c.LeaseDuration <= c.RenewDeadline {
		add("LeaseDuration %v must be greater than RenewDeadline %v: lengthen LeaseDuration", c.LeaseDuration, c.RenewDeadline)
	}
	c.validateCoordinated(add)
	errs = append(errs, c.validateLimits()...)
	return errors.Join(errs...)
}

func (c LeaderElectionConfig) validateCoordinated(add func(format string, args ...any)) {
	if !c.Coordinated {
		return
	}
	switch _, complete := c.Lock.(k8sresourcelock.Lock); lock := c.Lock.(type) {
	case *k8sresourcelock.ConfigMapLock:
		add("Coordinated with a %T: a coordinator supports only Leases. Use a LeaseLock.", lock)
	default:
		if !complete {
			add("Coordinated with a %T, which does not store what a coordinator writes. Use a LeaseLock.", lock)
		}
	}
	if c.KeyComparison != nil {
		add("Coordinated with a KeyComparison: the coordinator chooses the leader. Set only one of them.")
	}
	if c.PreemptImmediately {
		add("Coordinated with PreemptImmediately: a coordinated candidate does not preempt. Set only one of them.")
	}
}

func (c LeaderElectionConfig) validateLimits() (errs []error) {
	for name, d := range map[string]time.Duration{"DrainLimit": c.DrainLimit, "StopLimit": c.StopLimit, "PeerGrace": c.PeerGrace, "SyncWait": c.SyncWait} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s %v: must not be negative", name, d))
		}
	}
	limit := c.DrainLimit // the default depends on the other durations
	c = c.withDefaults()
	t := c.timing()
	switch room := t.DrainRoom(maxClockDrift); {
	case room <= 0:
		errs = append(errs, fmt.Errorf("RenewDeadline %v leaves no time to drain within LeaseDuration %v with clocks off by %v: "+
			"lengthen LeaseDuration, or shorten RenewDeadline (to less than %v)",
			c.RenewDeadline, c.LeaseDuration, maxClockDrift, t.SafeLease(maxClockDrift).Truncate(time.Millisecond)))
	case limit > room:
		errs = append(errs, fmt.Errorf("RenewDeadline %v and DrainLimit %v do not fit into LeaseDuration %v with clocks off by %v: "+
			"lengthen LeaseDuration, or shorten RenewDeadline or DrainLimit (at most %v)",
			c.RenewDeadline, limit, c.LeaseDuration, maxClockDrift, room))
	}
	return errs
}

// withDefaults returns a copy with defaults for zero fields.
func (c LeaderElectionConfig) withDefaults() LeaderElectionConfig {
	t := c.timing()
	c.DrainLimit = t.DrainLimit
	c.StopLimit = t.StopLimit
	if c.Name == "" {
		c.Name = c.Lock.Describe()
	}
	return c
}

// timing returns the durations for the core.
func (c LeaderElectionConfig) timing() core.Timing {
	return core.Timing{
		Lease: c.LeaseDuration, Validity: c.RenewDeadline, Retry: c.RetryPeriod,
		PeerGrace: c.PeerGrace, SyncWait: c.SyncWait, DrainLimit: c.DrainLimit, StopLimit: c.StopLimit,
	}.Derived(maxClockDrift)
}

// core returns the configuration of the core, without OneCycle.
func (c LeaderElectionConfig) core() core.Config {
	return core.Config{
		Self: c.Lock.Identity(), Key: complete(c.Lock).Key(),
		Timing:      c.timing(),
		Ranked:      c.Ranked,
		External:    !c.Ranked && c.KeyComparison != nil,
		Immediate:   c.PreemptImmediately,
		Release:     c.ReleaseOnCancel,
		Coordinated: c.Coordinated,
		Resolution:  resolution(c.Lock),
	}
}

// resolution returns the unit of the times in a lock. Zero: a second.
func resolution(lock k8sresourcelock.Interface) core.Stamp {
	if _, ok := lock.(*k8sresourcelock.LeaseLock); ok {
		return core.Stamp(1)
	}
	return 0
}
