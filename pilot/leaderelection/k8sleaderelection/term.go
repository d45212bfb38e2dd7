package k8sleaderelection

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// term is a term of this process: the context of its run functions, and their end.
type term struct {
	l      *loop
	cancel context.CancelCauseFunc

	ending core.Instant // when the context ended; zero: it has not. Only the loop uses it.
	warned bool         // that functions are slow to return

	ended chan struct{} // closed when the context is done and all functions have returned

	mu      sync.Mutex
	pending []string // names of the functions that have not returned
	err     error    // of all functions that failed during the term
}

type termKey struct{}

// TermFromContext returns the term that the context of a run function belongs to.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// ContextWithTerm returns a context that belongs to a term. It is for run functions that create their own contexts,
// and for tests.
func ContextWithTerm(ctx context.Context, t Term) context.Context {
	return context.WithValue(ctx, termKey{}, t)
}

// startTerm starts the run functions. The term posts an event for each failure and one for its end.
func startTerm(l *loop, which Term) *term {
	config := &l.le.config
	ctx, cancel := context.WithCancelCause(ContextWithTerm(l.values, which))
	t := &term{l: l, cancel: cancel, ended: make(chan struct{})}
	functions := config.functions()
	for _, f := range functions {
		t.pending = append(t.pending, f.name)
	}
	go t.run(ctx, functions)
	return t
}

// slowDrain is how long functions may take to return after the end of their context without a warning.
const slowDrain = 2 * time.Second

// warnOfSlowDrain logs once which functions have not returned, and returns when it must be called again.
func (t *term) warnOfSlowDrain(now core.Instant) core.Instant {
	switch at := t.ending.After(slowDrain); {
	case t.ending == 0 || t.warned:
		return core.Never
	case now < at:
		return at
	}
	t.warned = true
	if names := t.running(); names != "" {
		t.l.report.log.Warn("run functions have not returned after the end of their context. Return when it ends.",
			"functions", names, "after", slowDrain, "limit", t.ending.Until(t.l.state.Drain.Until))
	}
	return core.Never
}

// running returns the names of the functions that have not returned.
func (t *term) running() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.pending, ", ")
}

// ErrGoexit is the error of a run function that called runtime.Goexit, for example by FailNow of a test.
var ErrGoexit = errors.New("function called runtime.Goexit")

// run ends the term when every function has returned, its context is done and every admitted write was answered. The
// last function runs in this goroutine, because most terms have only one.
func (t *term) run(ctx context.Context, functions []runFunction) {
	var others sync.WaitGroup
	// Deferred, because a function may call runtime.Goexit. A panic must not wait for the end of the context.
	defer func() {
		if p := recover(); p != nil {
			panic(p)
		}
		others.Wait()
		t.finish(ctx)
	}()
	if last := len(functions) - 1; last >= 0 {
		for _, f := range functions[:last] {
			others.Go(func() { t.call(ctx, f) })
		}
		t.call(ctx, functions[last])
	}
}

func (t *term) finish(ctx context.Context) {
	<-ctx.Done()
	// The gate still belongs to this term: no new term starts before these functions have returned.
	if gate := t.l.le.config.Gate; gate != nil {
		gate.Drain()
	}
	close(t.ended)
	t.l.post(&event{in: core.Input{Kind: core.Drained}})
}

// call runs one function. An error after the end of the context is not a failure.
func (t *term) call(ctx context.Context, f runFunction) {
	err := ErrGoexit // unless f returns
	defer func() {
		t.mu.Lock()
		if i := slices.Index(t.pending, f.name); i >= 0 {
			t.pending = slices.Delete(t.pending, i, i+1)
		}
		t.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			t.fail(err)
		}
	}()
	err = f.run(ctx)
}

// fail collects an error and reports it to the loop. The first one ends the term.
func (t *term) fail(err error) {
	t.mu.Lock()
	t.err = errlist.Error(multierror.Append(t.err, err))
	t.mu.Unlock()
	t.l.post(&event{in: core.Input{Kind: core.StepDown}, err: err})
}

// failure returns all errors of the term.
func (t *term) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
