package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// ErrNotLeader is the error of a write that the gate refuses. errors.As finds a
// *NotLeaderError with the details, through client-go's errors too.
var ErrNotLeader = errors.New("not the leader")

// ErrOutcomeUnknown is the error of a write that was sent and then given up, because the
// term or its caller's time ended before the API server had answered. The write may have been
// applied, or may yet be. errors.As finds an *OutcomeUnknownError with the details.
var ErrOutcomeUnknown = errors.New("the outcome of the write is unknown")

// ErrUpgrade is the error of a request to upgrade its connection: exec, attach, port-forward,
// CONNECT, and whatever else becomes a connection of its own. Such a connection would outlive
// the gate; see Gate.AllowUpgrades. While the gate is shut the error is ErrNotLeader instead.
var ErrUpgrade = errors.New("an upgraded connection would outlive the gate: declare it with AllowUpgrades, or use a client without a gate for it")

// NotLeaderError says which gate refused a write, and why.
type NotLeaderError struct {
	// Election is the gate's election.
	Election string
	// Term is the one that the gate was last open in; zero when it never was.
	Term k8sleaderelection.Term
	// Reason: "not leading", "the cover has ended", "draining", or "the request's context
	// belongs to another term".
	Reason string
}

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("election %s: %v: %s (term %d, token %d)", e.Election, ErrNotLeader, e.Reason, e.Term.Transitions, e.Term.Token)
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// OutcomeUnknownError says in which term a write was given up, and why. Read the object before
// deciding what to do: the write may have been applied or not.
type OutcomeUnknownError struct {
	// Election is the gate's election, and Term the one that the write was admitted in.
	Election string
	Term     k8sleaderelection.Term
	// Reason: "the cover ended", "the term ended" or "the caller gave up".
	Reason string
	// Err is the cause of the end of the caller's context; nil if it did not end.
	Err error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("election %s: %v: %s before the API server had answered (term %d, token %d): it may have been applied, or may yet be; "+
		"read the object before deciding what to do", e.Election, ErrOutcomeUnknown, e.Reason, e.Term.Transitions, e.Term.Token)
}

// Is makes errors.Is(err, ErrOutcomeUnknown) true.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true for a caller's own deadline.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Gate admits writes within the cover of a term. Its zero value is not usable.
type Gate struct {
	election string
	clock    *k8sleaderelection.Clock
	// open is read on each request; it is replaced, never changed.
	open atomic.Pointer[admission]
	// byGate and byFence count refusals.
	byGate, byFence atomic.Uint64
	declared        atomic.Pointer[func(*http.Request) bool]
	// passed counts the writes that were let through.
	passed atomic.Uint64

	mu       sync.Mutex
	term     *termWrites
	underway int
	idle     chan struct{} // closed when underway falls to zero; nil when nobody waits
}

// admission is until when writes of a term may pass.
type admission struct {
	term  k8sleaderelection.Term
	end   k8sleaderelection.Validity
	shut  string // why nothing passes; empty: writes pass until end
	local *termWrites
}

// termWrites is shared by the writes of one term: a context that ends with it.
type termWrites struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	draining bool
}

// NewGate makes a gate, shut, for the election of that name. The clock has to be the
// elector's.
func NewGate(election string, clock *k8sleaderelection.Clock) *Gate {
	g := &Gate{election: election, clock: clock}
	g.open.Store(&admission{shut: notLeading})
	return g
}

const (
	notLeading = "not leading"
	coverEnded = "the cover has ended"
	draining   = "draining"
	otherTerm  = "the request's context belongs to another term"

	coverCut  = "the cover ended"
	termCut   = "the term ended"
	callerCut = "the caller gave up"
)

// Set admits writes of term until end. The zero Cover shuts the gate and cancels the
// writes under way.
func (g *Gate) Set(term k8sleaderelection.Term, end k8sleaderelection.Validity) {
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

// Drain admits no more writes in the present term, and returns once all that were
// admitted have been answered or have run out.
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
	<-idle // bounded: the context of each write ends with its cover
}

// Refused is how many writes were refused so far: by the gate, and by the fence although
// the gate was open. The latter include those that were tried again and admitted then.
func (g *Gate) Refused() (byGate, byFence uint64) { return g.byGate.Load(), g.byFence.Load() }

// Admitted is how many writes the gate has let through so far. Work whose writes do not
// add to it is done with a client that has no gate.
func (g *Gate) Admitted() uint64 { return g.passed.Load() }

// Check reports whether a write may pass now; the error is a *NotLeaderError.
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
		return nil, g.refusal(a.term, coverEnded)
	}
	return a, nil
}

func (g *Gate) refusal(term k8sleaderelection.Term, reason string) error {
	return &NotLeaderError{Election: g.election, Term: term, Reason: reason}
}

// admitted is a write under way.
type admitted struct {
	// ctx is the write's. It ends with the cover as it was, or with the term.
	ctx context.Context
	// done has to be called once the write is over; further calls do nothing.
	done func()
	of   *admission
}

// admit counts a write as under way. Its context does not end with the caller's,
// because the server may apply a write whose sender has given up, and a drain must
// not end before that is known.
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
	// The end is that of the reading by which the gate was open. One that is counted from
	// here would be later by as much as the process was stopped in between.
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
		return admitted{}, g.refusal(a.term, coverEnded)
	}
	return admitted{ctx: ctx, done: done, of: a}, nil
}

// checkTerm refuses what a goroutine sends that has outlived the term it was started in.
func (g *Gate) checkTerm(ctx context.Context, a *admission) error {
	if term, ok := k8sleaderelection.TermFromContext(ctx); ok && term != a.term {
		return g.refusal(a.term, otherTerm)
	}
	return nil
}

// unknown is the error for a write that was given up after it had been handed on.
func (g *Gate) unknown(pass admitted, caller context.Context) error {
	err := &OutcomeUnknownError{Election: g.election, Term: pass.of.term, Reason: coverCut}
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
