package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/derive"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// JitterFactor spreads polls: one comes RetryPeriod × (1 + JitterFactor × a random number in [0,1)) after the lock was
// last seen. RenewDeadline has to exceed RetryPeriod × JitterFactor. client-go has the same constant.
const JitterFactor = core.JitterFactor

// DefaultMaxClockDrift is the share by which clock rates may differ from true time.
// Clocks of computers stay below 0.0005 even undisciplined; this leaves room.
const DefaultMaxClockDrift = 0.02

// KeyComparisonFunc reports whether this candidate outranks a live holder whose
// record carries existingKey, and may therefore take its lock. The elector's goroutine
// calls it for every event, so it has to be quick and must not block. Call
// LeaderElector.Refresh when its answer may have changed. nil: nobody outranks anybody.
type KeyComparisonFunc func(existingKey string) bool

// LeaderCallbacks are called when a term begins or ends, and when another candidate holds the lock.
type LeaderCallbacks struct {
	// OnStartedLeading runs while the term lasts; its context ends with the term's
	// right to act. A release waits for its return. Returning early keeps the lead.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called when Run is about to return, whether it led or not,
	// and by Campaign after each term.
	OnStoppedLeading func()
	// OnNewLeader is called when the record names another holder than before, this
	// candidate included; not when it names nobody. Each call runs on a goroutine of its
	// own, so that two may overlap, or come in the other order. It must not block: Run
	// waits for all of them before it returns.
	OnNewLeader func(identity string)
}

// LeaderElectionConfig configures one candidate of one election. Lock, LeaseDuration,
// RenewDeadline and RetryPeriod are required; all else is optional. The fields down to Name
// are client-go's, but for KeyComparison, which is that of Istio's fork.
type LeaderElectionConfig struct {
	// Lock stores the record. The candidate's identity and key come from it.
	Lock k8sresourcelock.Interface

	// LeaseDuration is written into the record. A follower may take the lock once it has
	// seen the record unchanged for the recorded duration or its own, whichever is longer;
	// of the recorded one no more counts than ten times its own, or an hour if that is
	// longer. In whole seconds, at least one.
	LeaseDuration time.Duration
	// RenewDeadline is how long an acknowledged write lets the leader act, counted
	// from when that write was sent.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two writes of a leader, and between polls.
	RetryPeriod time.Duration

	// KeyComparison lets this candidate preempt a live holder. With Ranked it is unused.
	KeyComparison KeyComparisonFunc
	Callbacks     LeaderCallbacks
	// WatchDog, if given, reports this elector's health.
	WatchDog *HealthzAdaptor
	// ReleaseOnCancel gives the lock up at the end, after the drain, so that the next
	// leader need not wait for the lease to run out.
	ReleaseOnCancel bool
	// Name names the election in metrics and logs. Empty means Lock.Describe().
	Name string

	// Work runs while the term lasts, beside OnStartedLeading. A function that
	// returns an error while leading makes the leader step down as by StepDown; one that
	// returns nil is done.
	RunFunctions []func(ctx context.Context) error
	// Ranked makes keys revisions, which Outranks compares by the default revision that
	// DefaultRevision gives. A candidate that outranks the leader asks it to hand over if
	// it is one of ours, and preempts any other.
	Ranked bool
	// DefaultRevision, if given, says what is known of the default revision now; one that is not Synced says nothing. The
	// elector asks when it starts and at each Refresh, and nobody passes it a value, which could come late. It must not block.
	DefaultRevision func() DefaultRevision
	// SyncWait is how long a Ranked elector that does not know the default revision yet
	// waits for it, from its start, before it takes a lock. A leader that does not know the
	// default cannot judge a request, so a candidate of higher rank preempts it, and then
	// settles for a lease. 0: not at all.
	SyncWait time.Duration
	// Coordinated leaves the choice of the leader to a coordinator (Kubernetes' coordinated election, KEP-4355, or the one
	// of package coordination), for a LeaseLock alone. The elector creates no lock, takes none and asks no leader for it: it
	// waits until it is named, and hands over to the candidate that spec.preferredHolder names. Where a coordinator neglects
	// a lock for three lease durations, or is known to be absent for so long (SetCoordinatorAbsent), the other rules count.
	Coordinated bool
	// Successor says that the lock guarded in earlier versions what newer locks guard now: see k8sresourcelock.Successors.
	// The elector wins it as any candidate does, and then keeps it together with other Successors, all of which lead at once. It
	// is never released, and a second Campaign still waits for the holders that the first has seen.
	Successor bool
	// DrainLimit is how long after the end of the cover, or after the record was lost, run
	// functions may take to return. 0 means the longest that the lease leaves room for:
	// LeaseDuration × (1−MaxClockDrift)/(1+MaxClockDrift) − RenewDeadline, which is 13.8 s
	// at 30/15/7.5 s and the default MaxClockDrift. A longer one is an error.
	DrainLimit time.Duration
	// StopLimit is how long they may take after a stop, a step-down or an accepted
	// handover, while the lease is kept. 0 means twice LeaseDuration.
	StopLimit time.Duration
	// PeerGrace is added to the lease of a holder without a valid marker, which may be a
	// peer, before this candidate acts: whether it was preempted or its lease has run out.
	// At 30/15/7.5 s it takes 15 s for an istiod that is cut off in the middle of a
	// renewal, and RetryPeriod + 2×RenewDeadline − LeaseDuration, which is 7.5 s, for
	// client-go's elector: see docs/handover.md. 0: none.
	PeerGrace time.Duration
	// PreemptImmediately acts at once after preempting a holder that cannot be asked,
	// as Istio's elector does. That holder may still act: then two do at the same time.
	PreemptImmediately bool
	// MaxClockDrift is the share by which this machine's clock rates may be off. 0
	// means DefaultMaxClockDrift.
	MaxClockDrift float64
	// Gate refuses writes outside the cover. Only the elector's loop moves it.
	Gate Gate
	// Clock measures the cover; give Gate the same one. nil: a new one.
	Clock *Clock
	// Fit, if given, says whether this process is fit to lead; an error says why not. It
	// is asked once per RetryPeriod and has that long to answer; no answer counts as unfit.
	// A follower that is unfit, or was not asked yet, does not campaign. A leader that
	// becomes unfit leads on, says so in the lock, and hands over to the first candidate
	// that asks: a lock is never left to nobody. At its end Run waits for a check under
	// way, whose context has ended, for another RetryPeriod at most, and then logs that it
	// is left behind.
	FitnessCheck func(ctx context.Context) error
	// OnStuckDrain is called once for a drain that has outstayed its limit. From then on
	// the lock is not renewed: it lapses, and another candidate may lead beside the functions
	// that still run.
	OnStuckDrain func()
	// ExitOnStuckDrain ends the process, with exit code 3, for a drain that has outstayed
	// its limit, after OnStuckDrain has returned: functions that will not end block every
	// next term, and only the process's end is sure to end them.
	ExitOnStuckDrain bool
	// Shared, if given, bounds the calls of all electors that have the same one; their LeaseLocks get it too.
	Shared *k8sresourcelock.Shared
	// Observer is called with phases and calls, for metrics.
	Observer Observer
	// Logger gets one line per transition and per new trouble. nil: slog.Default.
	Logger *slog.Logger
}

// Gate admits writes until an end that only the elector moves.
type Gate interface {
	// Set admits writes of the given term until end; the zero Cover shuts the gate.
	// It does not block.
	Set(term Term, end Validity)
	// Drain admits no more writes in the present term and returns when all that were
	// admitted have been answered or have run out.
	Drain()
}

// Term is one unbroken time of leadership. The zero Term is none.
type Term struct {
	// LockUID is the UID of the lock object; of a MultiLock, of the secondary.
	LockUID string
	// Transitions is the record's leaderTransitions.
	Transitions int
	// Token is the fencing token: the resourceVersion of the term's first own write; with
	// a MultiLock, of that to the secondary.
	// It grows from term to term within one etcd history.
	Token uint64
}

// Validate returns an error that lists all that is wrong with the configuration, and how to correct it.
func (c LeaderElectionConfig) Validate() error {
	if c.Lock == nil {
		return errors.New("no Lock: give the lock that the election is about")
	}
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, k8sresourcelock.ValidateIdentity(c.Lock.Identity()))
	if v, ok := c.Lock.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	if c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0 {
		add("LeaseDuration %v: the record carries whole seconds, at least one", c.LeaseDuration)
	}
	if c.RetryPeriod <= 0 {
		add("RetryPeriod %v: must be greater than zero", c.RetryPeriod)
	}
	if c.RenewDeadline <= time.Duration(JitterFactor*float64(c.RetryPeriod)) {
		add("RenewDeadline %v must be greater than RetryPeriod %v times %v: lengthen RenewDeadline or shorten RetryPeriod",
			c.RenewDeadline, c.RetryPeriod, JitterFactor)
	}
	if c.LeaseDuration <= c.RenewDeadline {
		add("LeaseDuration %v must be greater than RenewDeadline %v: lengthen LeaseDuration", c.LeaseDuration, c.RenewDeadline)
	}
	c.validateCoordinated(add)
	c.validateSuccessor(add)
	errs = append(errs, c.validateLimits()...)
	return errors.Join(errs...) // which leaves out nil
}

func (c LeaderElectionConfig) validateCoordinated(wrong func(format string, args ...any)) {
	if !c.Coordinated {
		return
	}
	switch _, versioned := c.Lock.(k8sresourcelock.Versioned); lock := c.Lock.(type) {
	case *k8sresourcelock.ConfigMapLock, *k8sresourcelock.MultiLock:
		wrong("Coordinated with a %T: a coordinator knows Leases alone, give a LeaseLock", lock)
	default:
		if !versioned {
			wrong("Coordinated with a %T, which does not store what a coordinator writes: give a LeaseLock", lock)
		}
	}
	if c.KeyComparison != nil {
		wrong("Coordinated with a KeyComparison: a coordinator chooses, leave one of the two out")
	}
	if c.PreemptImmediately {
		wrong("Coordinated with PreemptImmediately: nobody preempts where a coordinator chooses, leave one of the two out")
	}
}

func (c LeaderElectionConfig) validateSuccessor(wrong func(format string, args ...any)) {
	if !c.Successor {
		return
	}
	switch _, versioned := c.Lock.(k8sresourcelock.Versioned); lock := c.Lock.(type) {
	case *k8sresourcelock.MultiLock:
		wrong("Successor with a %T: earlier versions hold one object, give a lock on that", lock)
	default:
		if !versioned {
			wrong("Successor with a %T, which cannot carry the note that the lock is kept: give a ConfigMapLock or a LeaseLock", lock)
		}
	}
	if c.Coordinated {
		wrong("Successor and Coordinated: a coordinator names one leader, and successors lead together; leave one of the two out")
	}
	if c.PreemptImmediately {
		wrong("Successor with PreemptImmediately: all successors would act beside whom one has preempted, leave one of the two out")
	}
}

func (c LeaderElectionConfig) validateLimits() (errs []error) {
	for name, d := range map[string]time.Duration{"DrainLimit": c.DrainLimit, "StopLimit": c.StopLimit, "PeerGrace": c.PeerGrace, "SyncWait": c.SyncWait} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s %v: must not be negative", name, d))
		}
	}
	if c.MaxClockDrift < 0 || c.MaxClockDrift >= 1 {
		return append(errs, fmt.Errorf("MaxClockDrift %v: must be at least 0 and less than 1", c.MaxClockDrift))
	}
	limit := c.DrainLimit // before a default that comes of the other durations
	c = c.withDefaults()
	t := c.timing()
	switch room := derive.DrainRoom(t, c.MaxClockDrift); {
	case room <= 0:
		errs = append(errs, fmt.Errorf("RenewDeadline %v leaves no time to drain within LeaseDuration %v with clocks off by %v: "+
			"lengthen LeaseDuration, or shorten RenewDeadline (to less than %v)",
			c.RenewDeadline, c.LeaseDuration, c.MaxClockDrift, derive.SafeLease(t, c.MaxClockDrift).Truncate(time.Millisecond)))
	case limit > room:
		errs = append(errs, fmt.Errorf("RenewDeadline %v and DrainLimit %v do not fit into LeaseDuration %v with clocks off by %v: "+
			"lengthen LeaseDuration, or shorten RenewDeadline or DrainLimit (at most %v)",
			c.RenewDeadline, limit, c.LeaseDuration, c.MaxClockDrift, room))
	}
	return errs
}

// withDefaults fills in what was left at zero.
func (c LeaderElectionConfig) withDefaults() LeaderElectionConfig {
	if c.MaxClockDrift == 0 {
		c.MaxClockDrift = DefaultMaxClockDrift
	}
	t := c.timing()
	c.DrainLimit, c.StopLimit = t.DrainLimit, t.StopLimit
	if c.Name == "" {
		c.Name = c.Lock.Describe()
	}
	return c
}

// timing is the part of the configuration that is durations.
func (c LeaderElectionConfig) timing() core.Timing {
	return derive.Timing(core.Timing{
		Lease: c.LeaseDuration, Validity: c.RenewDeadline, Retry: c.RetryPeriod,
		PeerGrace: c.PeerGrace, SyncWait: c.SyncWait, DrainLimit: c.DrainLimit, StopLimit: c.StopLimit,
	}, c.MaxClockDrift)
}

// core is the part of the configuration that decisions are made by.
func (c LeaderElectionConfig) core() core.Config {
	return core.Config{
		Self: c.Lock.Identity(), Key: c.Lock.Key(),
		Timing:    c.timing(),
		Ranked:    c.Ranked,
		External:  !c.Ranked && c.KeyComparison != nil,
		Immediate: c.PreemptImmediately,
		Release:   c.ReleaseOnCancel,

		Coordinated: c.Coordinated,
		Successor:   c.Successor,
	}
}
