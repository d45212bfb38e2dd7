package leaderelection

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/atomic"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// held is an election with a held predecessor. The outer elector campaigns for the predecessor's lock. Its run function lets the
// inner elector campaign for the lock of the election. So the run functions of the election run only in a term of the new lock
// inside a term of the old one:
//
//   - the outer term drains until the run functions have returned, even if the release of the new lock takes longer
//   - the gate is open while both validities last
//   - a failed run function, and a rejected acquisition or read of the new lock, end the outer term, so that another candidate can lead
type held struct {
	election     *LeaderElection
	outer, inner *k8sleaderelection.LeaderElector
	gate         heldGate
	check        func(context.Context) error
	// unproven is true until a dry run has shown that the API server accepts this process as holder of the lock of the election.
	unproven atomic.Bool
	running  context.Context // of run
	// leave ends the outer term with an error.
	leave atomic.Pointer[context.CancelCauseFunc]
	ended chan struct{} // closed when the inner elector has ended
}

// hold returns the two electors of an election with a held predecessor. inner is the configuration without it.
func (l *LeaderElection) hold(client kubernetes.Interface, inner k8sleaderelection.LeaderElectionConfig) (*held, error) {
	h := &held{election: l, check: inner.FitnessCheck, ended: make(chan struct{})}
	h.gate.gate = l.gate
	h.unproven.Store(true)
	outer := inner
	inner.Gate = innerGate{&h.gate}
	inner.RunFunctions = []func(context.Context) error{h.work}
	inner.FitnessCheck = nil // fit calls SetUnfit
	outer.Lock = l.predecessorLock(client)
	outer.Name = l.cfg.predecessorName()
	outer.Gate = outerGate{&h.gate}
	outer.RunFunctions = []func(context.Context) error{h.campaign}
	outer.RunFunctionNames = []string{fmt.Sprintf("election %s (%s)", inner.Name, inner.RunFunctionNames[0])}
	outer.FitnessCheck = h.fit
	if w := inner.Witness; w != nil {
		outer.Witness = lastWitness{w}
	}
	var err error
	if h.inner, err = k8sleaderelection.NewLeaderElector(inner); err != nil {
		return nil, err
	}
	h.inner.SetBarred(true)
	outer.StopLimit = h.inner.StopLimit() + h.releaseWait()
	if h.outer, err = k8sleaderelection.NewLeaderElector(outer); err != nil {
		return nil, err
	}
	return h, nil
}

// run takes part until ctx ends. The inner elector observes its lock from the beginning, so it knows an expired lease and a deleted
// lock when the outer term begins.
func (h *held) run(ctx context.Context) error {
	h.running = ctx
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer close(h.ended)
		_ = h.inner.Campaign(inner) // work reports its errors
	}()
	err := h.outer.Campaign(ctx)
	stop()
	<-h.ended
	return err
}

// releaseWait is the longest time for which the release of the old lock waits for the release of the new one.
func (h *held) releaseWait() time.Duration { return h.election.cfg.RenewDeadline / 2 }

// campaign is the run function of the outer elector. It returns when the run functions have returned and no write is pending. If the
// outer term lasts, the new lock is released first.
func (h *held) campaign(outer context.Context) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	h.leave.Store(&cancel)
	h.inner.SetBarred(false)
	h.await(ctx, func() bool { return h.rejected() != nil })
	if err := h.rejected(); err != nil {
		cancel(err)
	}
	<-ctx.Done()
	if why(h.inner.Status()) != "" {
		h.unproven.Store(true)
	}
	h.inner.SetBarred(true)
	ending := context.WithoutCancel(ctx)
	h.await(ending, h.inner.Idle)
	if h.outer.IsLeader() {
		release, stop := context.WithTimeout(ending, h.releaseWait())
		defer stop()
		h.await(release, func() bool { return h.inner.Status().Phase == k8sleaderelection.PhaseFollowing })
	}
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// await waits until the status of the inner elector satisfies a condition, or until ctx ends.
func (h *held) await(ctx context.Context, met func() bool) {
	for {
		changed := h.inner.Changed() // before the condition, so that no change is missed
		if met() {
			return
		}
		select {
		case <-changed:
		case <-h.ended:
			_ = h.inner.AwaitDrained(ctx) // functions that exceeded their limit
			return
		case <-ctx.Done():
			return
		}
	}
}

// rejected returns an error if the API server rejected an acquisition of the new lock, or rejects to read it. A leader whose renewals
// are rejected keeps its term until its validity ends.
func (h *held) rejected() error {
	if s := h.inner.Status(); s.Phase == k8sleaderelection.PhaseFollowing && why(s) != "" {
		return fmt.Errorf("acquire lock %s/%s: %s", h.election.cfg.Namespace, h.election.cfg.lockName(), why(s))
	}
	return nil
}

// why returns why an elector cannot acquire its lock, or "".
func why(s k8sleaderelection.Status) string { return cmp.Or(s.Rejected, s.Unreadable) }

// work is the run function of the inner elector. An error also ends the outer term. After a suspend, the inner elector can acquire
// its lock before the outer one sees that its validity has ended. Then no run function starts, unless a late answer shows that the
// outer term continues.
func (h *held) work(ctx context.Context) error {
	for {
		changed := h.outer.Changed() // before the condition, so that no change is missed
		if h.outer.IsLeader() {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	err := k8sleaderelection.ErrGoexit // unless the functions return
	defer func() {
		if err != nil && ctx.Err() == nil {
			(*h.leave.Load())(err)
		}
	}()
	err = h.election.work(ctx)
	return err
}

// fit is the fitness check of the outer elector. A process that must not write the new lock does not campaign for the old one.
func (h *held) fit(ctx context.Context) error {
	if h.unproven.Load() {
		// A slow API server needs longer than one fitness check.
		ctx, cancel := context.WithTimeout(h.running, h.election.cfg.RenewDeadline)
		defer cancel()
		if err := h.inner.ProveAcquire(ctx); err != nil {
			return fmt.Errorf("%w. Grant get, create, update and watch on the lock.", err)
		}
		h.unproven.Store(false)
	}
	if h.check == nil {
		return nil
	}
	err := h.check(ctx)
	h.inner.SetUnfit(err != nil) // the outer elector receives the result later
	return err
}

// status returns the status of both electors together.
func (h *held) status() k8sleaderelection.Status {
	outer, inner := h.outer.Status(), h.inner.Status()
	s := outer
	s.Leading = inner.Leading && outer.Leading
	s.ValidFor = min(inner.ValidFor, outer.ValidFor)
	s.Term = inner.Term
	s.HandoverWait = max(inner.HandoverWait, outer.HandoverWait)
	s.Rejected = cmp.Or(inner.Rejected, outer.Rejected)
	campaigns := outer.Phase == k8sleaderelection.PhaseLeading || outer.Phase == k8sleaderelection.PhaseDraining && inner.Phase != k8sleaderelection.PhaseFollowing
	if campaigns {
		s.Phase, s.Reason, s.Since = inner.Phase, inner.Reason, inner.Since
	}
	// If no process leads by the new lock, a process without it may lead by the old one.
	if campaigns || inner.Acting {
		s.Holder, s.HolderKey, s.Transitions = inner.Holder, inner.HolderKey, inner.Transitions
		s.Acting = inner.Acting
		s.Object = inner.Object
	}
	return s
}

// lastWitness releases the lock after the other locks of the process.
type lastWitness struct{ k8sleaderelection.Witness }

func (w lastWitness) Register(t k8sleaderelection.WitnessedTerm) {
	t.Last = true
	w.Witness.Register(t)
}

// heldGate opens the gate of the election, for the term of the inner elector, while the validities of both electors last.
type heldGate struct {
	gate *gate.Gate

	mu           sync.Mutex
	term         k8sleaderelection.Term
	outer, inner k8sleaderelection.Validity
}

// set sets the gate. The caller holds mu.
func (g *heldGate) set() {
	g.gate.Set(g.term, k8sleaderelection.Validity{
		Mono: min(g.outer.Mono, g.inner.Mono), Boot: min(g.outer.Boot, g.inner.Boot), Wall: min(g.outer.Wall, g.inner.Wall),
	})
}

// outerGate and innerGate are the gates of the two electors.
type (
	outerGate struct{ *heldGate }
	innerGate struct{ *heldGate }
)

func (g outerGate) Set(_ k8sleaderelection.Term, end k8sleaderelection.Validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outer = end
	g.set()
}

// Drain does nothing: the run function of the outer elector has drained the gate.
func (outerGate) Drain() {}

func (g innerGate) Set(term k8sleaderelection.Term, end k8sleaderelection.Validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term = term
	g.inner = end
	g.set()
}

func (g innerGate) Drain() { g.gate.Drain() }
