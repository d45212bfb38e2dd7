package revisions

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pkg/kube"
)

// DefaultWatcher watches the default revision. Its methods are safe for concurrent use.
type DefaultWatcher interface {
	// Run follows the webhook until stopCh closes, and returns when everything that it started has ended. It may be called again
	// then. A second call while it runs is logged and returns immediately.
	Run(stopCh <-chan struct{})
	// HasSynced reports whether the webhook has been read, or was found absent, at least once.
	HasSynced() bool
	// GetDefault returns the default revision that was read last. It returns "" if there is none or before HasSynced.
	GetDefault() string
	// AddHandler adds a handler. Run calls it with the current value when HasSynced is true, and with each later value. Handlers
	// are called one after the other and may call the watcher. A handler that does not return delays the others and the end of Run.
	AddHandler(handler DefaultHandler)
}

// DefaultHandler receives the default revision, or "" if there is none.
type DefaultHandler func(string)

// NewDefaultWatcher returns a watcher of the webhook DefaultTagWebhook. revision is the revision of this process, for the log.
func NewDefaultWatcher(client kube.Client, revision string, istioNamespace string) DefaultWatcher {
	return NewDefault(client, Config{Revision: revision, Namespace: istioNamespace})
}

// NewDefault returns a watcher with a complete Config. It also has the methods Problem and Subscribe.
func NewDefault(client kube.Client, config Config) DefaultWatcher {
	config = config.withDefaults()
	names := tagging.DefaultTagWebhooks(config.Namespace)
	if !config.Fallback {
		names = names[:1]
	}
	log := config.Logger.With("webhook", names[0])
	w := &defaultWatcher{
		names: names, config: config, log: log, hooks: map[string]*webhook{}, unread: sets.New(names...),
		broadcaster: newBroadcaster(func(a, b string) bool { return a == b }),
	}
	instead := map[string]string{}
	for _, name := range names {
		instead["list"+w.of(name)] = "reading it with get"
		instead["get"+w.of(name)] = "keeping the default revision that was read last, if any"
		instead["watch"+w.of(name)] = "reading it every " + config.PollInterval.String()
	}
	w.runner = newRunner(client, log, config.PollInterval, instead)
	return w
}

type defaultWatcher struct {
	// names are the webhooks, in their order of precedence.
	names  []string
	config Config
	log    *slog.Logger
	*broadcaster[string]
	*runner

	// mu guards the fields below. Each follower has its own goroutine.
	mu     sync.Mutex
	unread sets.Set[string]
	hooks  map[string]*webhook // the existing webhooks by name
}

// of returns the suffix of verbs in reports about a webhook.
func (w *defaultWatcher) of(name string) string {
	if name == tagging.DefaultTagWebhook("") || len(w.names) == 1 {
		return ""
	}
	return " " + name
}

func (w *defaultWatcher) Run(stopCh <-chan struct{}) {
	w.run(stopCh, &w.broadcaster.calls, func() (all []func(context.Context)) {
		for i, name := range w.names {
			all = append(all, follow(w.runner, w.of(name), watch.Objects[*webhook]{
				Source: webhooks(w.client), Name: name,
				Optional: i < len(w.names)-1, // roles of earlier versions do not include the webhook of the namespace
				Changed:  func(found []*webhook) { w.change(name, found) },
			}))
		}
		return all
	})
}

// change applies a change of one webhook, which is found if it exists. The default revision counts after all webhooks have been read.
func (w *defaultWatcher) change(name string, found []*webhook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.hooks, name)
	for _, item := range found {
		w.hooks[name] = item
	}
	if w.unread.Delete(name); len(w.unread) > 0 {
		return
	}
	w.post(w.revision())
}

// revision returns the default revision of the existing webhooks. Without Fallback, the owner of the webhook does not matter, as in istiod.
func (w *defaultWatcher) revision() string {
	var hooks []*webhook
	for _, name := range w.names {
		if hook := w.hooks[name]; hook != nil {
			hooks = append(hooks, hook)
		}
	}
	if !w.config.Fallback && len(hooks) > 0 {
		return tagging.Named(hooks[0].Labels)
	}
	return tagging.DefaultRevision(w.config.Namespace, hooks...)
}

func (w *defaultWatcher) post(revision string) {
	if before, known := w.broadcaster.read(); !known || before != revision {
		w.log.Info("default revision changed", "revision", revision, "before", before, "ours", revision == w.config.Revision)
	}
	w.broadcaster.post(revision)
}

func (w *defaultWatcher) GetDefault() string {
	revision, _ := w.broadcaster.read()
	return revision
}

func (w *defaultWatcher) AddHandler(handler DefaultHandler) { w.Subscribe(handler) }

// Subscribe adds a handler like AddHandler, and unsubscribe removes it, for users that end before the watcher. No call of handler begins
// after unsubscribe has returned. unsubscribe does not wait for a running call.
func (w *defaultWatcher) Subscribe(handler DefaultHandler) (unsubscribe func()) {
	if handler == nil {
		w.log.Error("handler is nil; ignored it")
		return func() {}
	}
	return w.broadcaster.handle(handler)
}
