package k8sleaderelection

import (
	"context"
	"sync"

	"github.com/hashicorp/go-multierror"
)

// term is one time of leadership: the run functions' context and their end.
type term struct {
	cancel context.CancelCauseFunc
	failed chan error    // room for one: the first error while leading
	done   chan struct{} // closed once told to stop and all have returned

	mu  sync.Mutex
	err error // all errors while leading; to be read once done is closed
}

type termKey struct{}

// TermFromContext returns the term that a run function's context belongs to.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// startTerm starts the run functions. The caller waits for done.
func startTerm(parent context.Context, config LeaderElectionConfig, which Term) *term {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(parent), termKey{}, which))
	t := &term{cancel: cancel, failed: make(chan error, 1), done: make(chan struct{})}
	functions := config.Work
	if started := config.Callbacks.OnStartedLeading; started != nil {
		functions = append([]func(context.Context) error{func(ctx context.Context) error { started(ctx); return nil }}, functions...)
	}
	go t.run(ctx, functions, config.Gate)
	return t
}

// run returns when every function has, the term was told to stop and no admitted
// write is under way. Functions that return early are done; the term goes on. The last
// one runs right here: most terms have but one.
func (t *term) run(ctx context.Context, functions []func(context.Context) error, gate Gate) {
	defer close(t.done)
	if last := len(functions) - 1; last >= 0 {
		var others sync.WaitGroup
		for _, f := range functions[:last] {
			others.Go(func() { t.call(ctx, f) })
		}
		t.call(ctx, functions[last])
		others.Wait()
	}
	<-ctx.Done()
	if gate != nil {
		gate.Drain()
	}
}

// call runs one function. What it says after it was told to stop is no failure, and
// the first failure is enough to end the term.
func (t *term) call(ctx context.Context, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		t.fail(err)
	}
}

func (t *term) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.failed <- err
	}
	t.err = multierror.Append(t.err, err)
}

func (t *term) failures() <-chan error {
	if t == nil {
		return nil
	}
	return t.failed
}

func (t *term) ended() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.done
}
