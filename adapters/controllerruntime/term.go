package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// term is the manager of one term. It shares everything with the Manager except the runnables.
type term struct {
	*Manager
	ctx    context.Context
	cancel context.CancelCauseFunc
	cache  *termCache
	// started is closed when the runnables start. Their start is the election of the term.
	started chan struct{}
	// ended is executed once, when the term has ended. A setup and runnables may still be running.
	ended func()

	mu      sync.Mutex
	waiting []manager.Runnable // until the start
	over    bool
	running sync.WaitGroup
}

var errTermOver = errors.New("the term has ended. A setup must use the manager of its own term")

func newTerm(ctx context.Context, m *Manager, ended func()) *term {
	t := &term{Manager: m, started: make(chan struct{}), ended: sync.OnceFunc(ended)}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(t.ctx, t.ended) // end waits for it
	t.cache = &termCache{Cache: m.GetCache(), ctx: t.ctx, all: m.indexes, mine: map[index]bool{}}
	return t
}

// run calls the setups, runs the added runnables until the term ends, and returns after each runnable has returned. The error is the
// first error of a setup or of a runnable.
func (t *term) run(setups []func(context.Context, manager.Manager) error) error {
	// A panic or runtime.Goexit in a setup must not leave runnables behind.
	defer t.end()
	for _, setup := range setups {
		if err := setup(t.ctx, t); err != nil {
			t.cancel(fmt.Errorf("set up a term: %w", err))
		}
		if t.ctx.Err() != nil { // also after an error that the setup does not return
			return context.Cause(t.ctx)
		}
	}
	t.start()
	<-t.ctx.Done()
	return context.Cause(t.ctx)
}

// start starts the caches, waits for them, and starts the other runnables.
func (t *term) start() {
	t.mu.Lock()
	waiting := t.waiting
	t.waiting = nil
	close(t.started)
	t.mu.Unlock()
	for _, r := range waiting {
		if c, ok := r.(hasCache); ok {
			t.launch(r)
			c.GetCache().WaitForCacheSync(t.ctx)
		}
	}
	for _, r := range waiting {
		if _, ok := r.(hasCache); !ok {
			t.launch(r)
		}
	}
}

func (t *term) launch(r manager.Runnable) {
	t.running.Go(func() {
		if err := r.Start(t.ctx); err != nil && t.ctx.Err() == nil {
			t.cancel(fmt.Errorf("run runnable %T: %w", r, err))
		}
	})
}

// end waits for all runnables. Then no handler of the term is left in the shared caches.
func (t *term) end() {
	t.cancel(nil)
	t.ended()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
	t.cache.close()
}

// Add adds a runnable to the term. During the term it starts immediately.
func (t *term) Add(r manager.Runnable) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return fmt.Errorf("add runnable %T: %w", r, errTermOver)
	case r == nil:
		return errors.New("add a runnable: it is nil")
	}
	select {
	case <-t.started:
		t.launch(r)
	default:
		t.waiting = append(t.waiting, r)
	}
	return nil
}

// GetCache returns the shared cache. The handlers that the term adds are removed at its end.
func (t *term) GetCache() cache.Cache { return t.cache }

// GetFieldIndexer returns the indexer of the shared cache. An index that an earlier term has added stays in use.
func (t *term) GetFieldIndexer() client.FieldIndexer { return t.cache }

// GetControllerOptions returns the options without the check of names by controller-runtime, which rejects each name in a second
// term. The default is the queue of client-go: the shutdown of a priority queue can block a goroutine that holds
// its locks, and then a worker does not return.
func (t *term) GetControllerOptions() config.Controller {
	options := t.Manager.GetControllerOptions()
	options.SkipNameValidation = new(true)
	if options.UsePriorityQueue == nil {
		options.UsePriorityQueue = new(false)
	}
	return options
}

// Elected returns a channel that is closed when the runnables of the term start.
func (t *term) Elected() <-chan struct{} { return t.started }

// Start returns an error, because the election starts the term.
func (t *term) Start(context.Context) error {
	return errors.New("start the manager of a term: the election starts it. Call Start of the Manager")
}

// GetWebhookServer returns a server that rejects webhooks, because a setup runs in the leader only.
func (t *term) GetWebhookServer() webhook.Server {
	return &webhooks{Server: webhook.NewServer(webhook.Options{}), fail: func(err error) { t.cancel(err) }}
}

func (t *term) AddHealthzCheck(name string, _ healthz.Checker) error {
	return notInTerm("health check", name)
}

func (t *term) AddReadyzCheck(name string, _ healthz.Checker) error {
	return notInTerm("readiness check", name)
}

func (t *term) AddMetricsServerExtraHandler(path string, _ http.Handler) error {
	return notInTerm("metrics handler", path)
}

func notInTerm(what, name string) error {
	return fmt.Errorf("add %s %q to a term: every replica serves it. Add it to the Manager before Start", what, name)
}

// webhooks is a webhook server that reports errors instead of a panic.
type webhooks struct {
	webhook.Server
	fail func(error)

	mu    sync.Mutex
	paths map[string]bool // registered so far; nil: no path is accepted
}

// Register registers a webhook, unless the path is registered or the server belongs to a term.
func (w *webhooks) Register(path string, hook http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.paths == nil:
		w.fail(notInTerm("webhook", path))
	case w.paths[path]:
		w.fail(fmt.Errorf("register webhook %q: the path is registered already. Choose another path for one of the webhooks", path))
	default:
		w.paths[path] = true
		w.Server.Register(path, hook)
	}
}
