package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// ErrNotLeader is the error of a write that the gate rejected. errors.As finds a *NotLeaderError with the details.
var ErrNotLeader = errors.New("not the leader")

// ErrOutcomeUnknown is the error of a write that was sent, if the term or the caller's context ended before the response.
// The API server may have applied it, or may still do so. errors.As finds an *OutcomeUnknownError with the details.
var ErrOutcomeUnknown = errors.New("the outcome of the write is unknown")

// ErrUpgrade is the error of a request that upgrades its connection, for example exec, attach, port-forward or CONNECT. Such
// a connection would outlive the gate, see Gate.AllowUpgrades. While the gate is closed, the error is ErrNotLeader.
var ErrUpgrade = errors.New("an upgraded connection would outlive the gate. Permit it with AllowUpgrades, or use a client without a gate")

// NotLeaderError contains the details of a rejected write.
type NotLeaderError struct {
	// Election is the name of the election.
	Election string
	// Term is the last term in which the gate was open. It is zero if the gate was never open.
	Term k8sleaderelection.Term
	// Reason is "not leading", "validity has ended", "draining", or "the request's context belongs to another term".
	Reason string
}

// Error returns the election, the reason and the last term.
func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("election %s: %v: %s (term %d, token %d)", e.Election, ErrNotLeader, e.Reason, e.Term.Transitions, e.Term.Token)
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// OutcomeUnknownError contains the details of a write without a response. Read the object before you retry the write.
type OutcomeUnknownError struct {
	// Election is the name of the election.
	Election string
	// Term is the term in which the write was admitted.
	Term k8sleaderelection.Term
	// Reason is "validity ended", "the term ended" or "the caller canceled".
	Reason string
	// Err is the cause of the caller's context, or nil if the context did not end.
	Err error
}

// Error returns the election, the reason, the term and the advice.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("election %s: %v: %s before the API server responded (term %d, token %d). "+
		"The write may have been applied, or may still be. Read the object before you retry", e.Election, ErrOutcomeUnknown, e.Reason, e.Term.Transitions, e.Term.Token)
}

// Is makes errors.Is(err, ErrOutcomeUnknown) true.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true for a caller's own deadline.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Gate admits writes while a term is valid. Use New.
type Gate struct {
	election  string
	clock     *k8sleaderelection.Clock
	clockless bool // New got no clock
	// open is immutable and replaced as a whole.
	open atomic.Pointer[admission]
	// byGate and byFence count rejections.
	byGate, byFence atomic.Uint64
	declared        atomic.Pointer[func(*http.Request) bool]
	// passed counts admitted writes.
	passed atomic.Uint64

	mu       sync.Mutex
	term     *termWrites
	underway int
	idle     chan struct{} // closed when underway becomes zero; nil without a waiting drain
}

// admission is the period in which writes of a term pass.
type admission struct {
	term  k8sleaderelection.Term
	end   k8sleaderelection.Validity
	shut  string // reason why writes are rejected; if empty, writes pass until end
	local *termWrites
}

// termWrites is shared by the writes of one term. ctx ends with the term.
type termWrites struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	draining bool
}

// New returns a closed gate. The clock must be the clock of the elector. Without a clock, the gate never opens.
func New(election string, clock *k8sleaderelection.Clock) *Gate {
	g := &Gate{election: election, clock: clock}
	g.open.Store(&admission{shut: notLeading})
	if clock == nil {
		g.open.Store(&admission{shut: noClock})
		g.clock = k8sleaderelection.NewClock(nil)
		g.clockless = true
	}
	return g
}

const (
	notLeading   = "not leading"
	noClock      = "the gate has no clock: pass the Clock of the elector to New"
	validityOver = "validity has ended"
	draining     = "draining"
	otherTerm    = "the request's context belongs to another term"

	validityCut = "validity ended"
	termCut     = "the term ended"
	callerCut   = "the caller canceled"
)

// Set admits writes of term until end. The zero Validity closes the gate and cancels pending writes.
func (g *Gate) Set(term k8sleaderelection.Term, end k8sleaderelection.Validity) {
	if g.clockless {
		return
	}
	old := g.open.Load()
	if old.term == term && old.end == end || end == (k8sleaderelection.Validity{}) && old.shut == notLeading {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if end == (k8sleaderelection.Validity{}) {
		g.open.Store(&admission{term: old.term, shut: notLeading})
		if g.term != nil {
			g.term.cancel(g.refusal(old.term, notLeading))
			g.term = nil
		}
		return
	}
	if g.term == nil || old.term != term {
		ctx, cancel := context.WithCancelCause(context.Background())
		g.term = &termWrites{ctx: ctx, cancel: cancel}
	}
	next := &admission{term: term, end: end, local: g.term}
	if g.term.draining {
		next.shut = draining
	}
	g.open.Store(next)
}

// Drain rejects further writes of the current term. It returns after each admitted write was answered or timed out.
func (g *Gate) Drain() {
	g.mu.Lock()
	if g.term != nil {
		g.term.draining = true
		shut := *g.open.Load()
		shut.shut = draining
		g.open.Store(&shut)
	}
	if g.underway == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	<-idle // bounded, because the context of each write ends with the validity
}

// Refused returns the number of writes that the gate rejected, and that the fence rejected although the gate was open. The
// latter includes writes that were admitted when retried.
func (g *Gate) Refused() (byGate, byFence uint64) { return g.byGate.Load(), g.byFence.Load() }

// Admitted returns the number of writes admitted so far. If it does not grow, the run functions use an ungated client.
func (g *Gate) Admitted() uint64 { return g.passed.Load() }

// Check returns a *NotLeaderError if a write would be rejected now.
func (g *Gate) Check() error {
	_, err := g.check(g.clock.Now())
	return err
}

func (g *Gate) check(now k8sleaderelection.ClockReading) (*admission, error) {
	a := g.open.Load()
	if a.shut != "" {
		return nil, g.refusal(a.term, a.shut)
	}
	if a.end.Left(now) <= 0 {
		return nil, g.refusal(a.term, validityOver)
	}
	return a, nil
}

func (g *Gate) refusal(term k8sleaderelection.Term, reason string) error {
	return &NotLeaderError{Election: g.election, Term: term, Reason: reason}
}

// admitted is a pending write.
type admitted struct {
	// ctx ends with the validity at the time of admission, or with the term.
	ctx context.Context
	// done must be called after the write. Further calls do nothing.
	done func()
	of   *admission
}

// admit registers a pending write. Its context does not end with the caller's context, because the API server may apply a
// canceled write, and a drain must wait for the result.
func (g *Gate) admit(caller context.Context) (admitted, error) {
	if caller.Err() != nil {
		return admitted{}, context.Cause(caller)
	}
	now := g.clock.Now()
	g.mu.Lock()
	a, err := g.check(now)
	if err == nil {
		err = g.checkTerm(caller, a)
	}
	if err != nil {
		g.mu.Unlock()
		return admitted{}, err
	}
	g.underway++
	g.mu.Unlock()
	g.passed.Inc()
	// Compute the deadline from the clock reading of the check. A new reading would extend it by a pause in between.
	end := g.clock.Deadline(now, a.end)
	ctx, cancel := context.WithDeadline(context.WithoutCancel(caller), end)
	unlink := context.AfterFunc(a.local.ctx, cancel)
	done := sync.OnceFunc(func() {
		unlink()
		cancel()
		g.writeEnded()
	})
	if ctx.Err() != nil {
		done()
		return admitted{}, g.refusal(a.term, validityOver)
	}
	return admitted{ctx: ctx, done: done, of: a}, nil
}

// checkTerm rejects a request of a goroutine that was started in another term.
func (g *Gate) checkTerm(ctx context.Context, a *admission) error {
	if term, ok := k8sleaderelection.TermFromContext(ctx); ok && term != a.term {
		return g.refusal(a.term, otherTerm)
	}
	return nil
}

// unknown returns the error of a write that was sent and ended without a response.
func (g *Gate) unknown(pass admitted, caller context.Context) error {
	err := &OutcomeUnknownError{Election: g.election, Term: pass.of.term, Reason: validityCut}
	switch {
	case pass.of.local.ctx.Err() != nil:
		err.Reason = termCut
	case pass.ctx.Err() == nil:
		err.Reason, err.Err = callerCut, context.Cause(caller)
	}
	return err
}

func (g *Gate) writeEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underway--; g.underway == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}
