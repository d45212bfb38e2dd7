package k8sleaderelection

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// term is one time of leadership: the run functions' context and their end.
type term struct {
	l      *loop
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	err      error         // all errors while leading
	returned bool          // the context has ended, and all have returned
	ended    chan struct{} // closed then; nil while nobody asked for it
}

type termKey struct{}

// TermFromContext returns the term that a run function's context belongs to.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// ContextWithTerm returns a context that belongs to a term, as that of a run function does:
// for run functions that make contexts of their own, and for tests.
func ContextWithTerm(ctx context.Context, t Term) context.Context {
	return context.WithValue(ctx, termKey{}, t)
}

// startTerm starts the run functions. They post an input for each failure, and one for
// their end.
func startTerm(l *loop, which Term) *term {
	config := &l.le.config
	ctx, cancel := context.WithCancelCause(ContextWithTerm(l.values, which))
	t := &term{l: l, cancel: cancel}
	functions := config.RunFunctions
	if started := config.Callbacks.OnStartedLeading; started != nil {
		functions = append([]func(context.Context) error{func(ctx context.Context) error { started(ctx); return nil }}, functions...)
	}
	go t.run(ctx, functions)
	return t
}

// ErrGoexit stands for the error of a run function that ended its goroutine with
// runtime.Goexit, as a test's FailNow does, in place of returning.
var ErrGoexit = errors.New("the run function ended its goroutine with runtime.Goexit")

// run ends the term when every function has returned, its context has ended and no admitted
// write is under way. Functions that return early are done; the term goes on. The last
// one runs right here: most terms have but one.
func (t *term) run(ctx context.Context, functions []func(context.Context) error) {
	var others sync.WaitGroup
	// Deferred, because a function may end this goroutine. A panic must not wait here for a
	// stop that may never come: the process is to die of it now.
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
	// If the loop has given these functions up, no other begins before they have ended:
	// the gate is still this term's.
	if gate := t.l.le.config.Gate; gate != nil {
		gate.Drain()
	}
	t.end()
}

// call runs one function. An error that it returns after its context has ended is no failure, and
// the first failure is enough to end the term.
func (t *term) call(ctx context.Context, f func(context.Context) error) {
	err := ErrGoexit // unless f returns
	defer func() {
		if err != nil && ctx.Err() == nil {
			t.fail(err)
		}
	}()
	err = f(ctx)
}

// fail tells the loop of each failure, which is reported; the first one ends the term.
func (t *term) fail(err error) {
	t.mu.Lock()
	errs := multierror.Append(t.err, err)
	errs.ErrorFormat = oneLine // it becomes a field of a log line
	t.err = errs
	t.mu.Unlock()
	t.l.post(&event{in: core.Input{Kind: core.StepDown}, err: err})
}

func oneLine(errs []error) string {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// failure is all errors while leading.
func (t *term) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *term) end() {
	t.mu.Lock()
	t.returned = true
	if t.ended != nil {
		close(t.ended)
	}
	t.mu.Unlock()
	t.l.post(&event{in: core.Input{Kind: core.Drained}})
}

// drained is closed once all functions have returned. Only a term that the loop did not
// wait for is asked for it.
func (t *term) drained() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = make(chan struct{})
		if t.returned {
			close(t.ended)
		}
	}
	return t.ended
}
