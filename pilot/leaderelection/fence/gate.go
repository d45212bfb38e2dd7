package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// ErrNotLeader is what a refused write fails with. errors.As finds a *NotLeaderError
// with the details, through client-go's errors too.
var ErrNotLeader = errors.New("not the leader")

// ErrUpgrade is what a request to upgrade its connection fails with while the gate is
// open: exec, attach, port-forward. Such a connection would outlive the gate.
var ErrUpgrade = errors.New("an upgraded connection would outlive the gate: use a client without one for exec, attach and port-forward")

// NotLeaderError says which gate refused a write, and why.
type NotLeaderError struct {
	// Election is the gate's election.
	Election string
	// Term is the one that the gate was last open in; zero when it never was.
	Term k8sleaderelection.Term
	// Reason: "not leading", "the cover has ended" or "draining".
	Reason string
}

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("election %s: %v: %s (term %d, token %d)", e.Election, ErrNotLeader, e.Reason, e.Term.Transitions, e.Term.Token)
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// Gate admits writes within the cover of a term. Its zero value is not usable.
type Gate struct {
	election string
	clock    *k8sleaderelection.Clock
	// open is read on each request; it is replaced, never changed.
	open atomic.Pointer[admission]
	// byGate and byFence count refusals.
	byGate, byFence atomic.Uint64

	mu       sync.Mutex
	term     *termWrites
	underway int
	idle     chan struct{} // closed when underway falls to zero; nil when nobody waits
}

// admission is until when writes of a term may pass.
type admission struct {
	term  k8sleaderelection.Term
	end   k8sleaderelection.Cover
	shut  string // why nothing passes; empty: writes pass until end
	local *termWrites
}

// termWrites is what the writes of one term share: a context that ends with it.
type termWrites struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	draining bool
	// fresh ends a moment after the term's begin: until then the fence may not know of it.
	fresh k8sleaderelection.Cover
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
)

// Set admits writes of term until end. The zero Cover shuts the gate and cancels the
// writes under way.
func (g *Gate) Set(term k8sleaderelection.Term, end k8sleaderelection.Cover) {
	old := g.open.Load()
	if old.term == term && old.end == end || end == (k8sleaderelection.Cover{}) && old.shut == notLeading {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if end == (k8sleaderelection.Cover{}) {
		g.open.Store(&admission{term: old.term, shut: notLeading})
		if g.term != nil {
			g.term.cancel(g.refusal(old.term, notLeading))
			g.term = nil
		}
		return
	}
	if g.term == nil || old.term != term {
		ctx, cancel := context.WithCancelCause(context.Background())
		g.term = &termWrites{ctx: ctx, cancel: cancel, fresh: g.clock.Now().Plus(freshTerm)}
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

// Check reports whether a write may pass now; the error is a *NotLeaderError.
func (g *Gate) Check() error {
	_, err := g.check(g.clock.Now())
	return err
}

func (g *Gate) check(now k8sleaderelection.Moment) (*admission, error) {
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
	// fresh ends when the term is no longer new.
	fresh k8sleaderelection.Cover
}

// admit counts a write as under way. Its context does not end with the caller's,
// because the server may apply a write whose sender has given up, and a drain must
// not end before that is known.
func (g *Gate) admit(ctx context.Context) (admitted, error) {
	if ctx.Err() != nil {
		return admitted{}, context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx)
	now := g.clock.Now()
	g.mu.Lock()
	a, err := g.check(now)
	if err != nil {
		g.mu.Unlock()
		return admitted{}, err
	}
	g.underway++
	g.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, a.end.Left(now), g.refusal(a.term, coverEnded))
	unlink := context.AfterFunc(a.local.ctx, cancel)
	return admitted{ctx: ctx, fresh: a.local.fresh, done: sync.OnceFunc(func() {
		unlink()
		cancel()
		g.leave()
	})}, nil
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underway--; g.underway == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}
