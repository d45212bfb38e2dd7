package revisions

import (
	"log/slog"

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

// Subscribable is implemented by the DefaultWatchers of this package, for users that end before the watcher.
type Subscribable interface {
	// Subscribe adds a handler like AddHandler, and unsubscribe removes it. No call of handler begins after unsubscribe has
	// returned. unsubscribe does not wait for a running call.
	Subscribe(handler DefaultHandler) (unsubscribe func())
}

// DefaultTagWebhook returns the name of the webhook whose label is the default revision of a control plane in a namespace. An empty
// namespace is istio-system.
func DefaultTagWebhook(namespace string) string {
	const name = "istio-revision-tag-default"
	if namespace == "" || namespace == usualNamespace {
		return name
	}
	return name + "-" + namespace
}

// NewDefaultWatcher returns a watcher of the webhook DefaultTagWebhook. revision is the revision of this process, for the log.
func NewDefaultWatcher(client kube.Client, revision string, istioNamespace string) DefaultWatcher {
	return NewDefault(client, Config{Revision: revision, Namespace: istioNamespace})
}

// NewDefault returns a watcher with a complete Config. The watcher also implements Reporter, Awaiter and Subscribable.
func NewDefault(client kube.Client, config Config) DefaultWatcher {
	config = config.withDefaults()
	name := DefaultTagWebhook(config.Namespace)
	log := config.Logger.With("webhook", name)
	return &defaultWatcher{
		name: name, revision: config.Revision, log: log,
		broadcaster: newBroadcaster(func(a, b string) bool { return a == b }),
		runner: newRunner(client, log, config.PollInterval, map[string]string{
			"list":  "reading it with get",
			"get":   "keeping the default revision that was read last, if any",
			"watch": "reading it every " + config.PollInterval.String(),
		}),
	}
}

type defaultWatcher struct {
	name        string
	revision    string
	log         *slog.Logger
	broadcaster *broadcaster[string]
	*runner
}

func (w *defaultWatcher) Run(stopCh <-chan struct{}) {
	w.run(stopCh, w.broadcaster.deliver, webhooks(reflector[webhook]{name: w.name, to: sink[webhook]{
		replace: func(all []webhook) {
			if len(all) == 0 {
				w.post("")
				return
			}
			w.post(w.labelled(all[0]))
		},
		set:    func(item webhook) { w.post(w.labelled(item)) },
		remove: func(string) { w.post("") },
	}}))
}

// labelled returns the revision of the webhook. An empty label is the revision without a name. Without the label there is none.
func (w *defaultWatcher) labelled(item webhook) string {
	revision, ok := item.Labels[revisionLabel]
	if ok && revision == "" {
		return unnamed
	}
	return revision
}

func (w *defaultWatcher) post(revision string) {
	if before, known := w.broadcaster.read(); !known || before != revision {
		w.log.Info("default revision changed", "revision", revision, "before", before, "ours", revision == w.revision)
	}
	w.broadcaster.post(revision)
}

func (w *defaultWatcher) HasSynced() bool {
	_, known := w.broadcaster.read()
	return known
}

func (w *defaultWatcher) GetDefault() string {
	revision, _ := w.broadcaster.read()
	return revision
}

func (w *defaultWatcher) AddHandler(handler DefaultHandler) { w.Subscribe(handler) }

// Subscribe implements Subscribable.
func (w *defaultWatcher) Subscribe(handler DefaultHandler) (unsubscribe func()) {
	if handler == nil {
		w.log.Error("handler is nil; ignored it")
		return func() {}
	}
	return w.broadcaster.handle(handler)
}
