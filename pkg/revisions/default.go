package revisions

import (
	"log/slog"

	"incumbent.dev/incumbent/pkg/kube"
)

// DefaultWatcher knows which revision is the default one. Its methods may be called
// from any goroutine.
type DefaultWatcher interface {
	// Run follows the webhook until stopCh closes, and returns when all that it started
	// has ended. It may be called again then; while it runs, a second call is reported
	// and returns at once.
	Run(stopCh <-chan struct{})
	// HasSynced reports whether the webhook has been read at least once, or found absent.
	HasSynced() bool
	// GetDefault is the default revision as last read; "" when there is none, and
	// before HasSynced.
	GetDefault() string
	// AddHandler has handler called by Run with the present value, once HasSynced, and
	// with each later one. Handlers are called one after the other; one may call the
	// watcher, and one that does not return holds up the others and the end of Run.
	AddHandler(handler DefaultHandler)
}

// DefaultHandler is called with the default revision, "" when there is none.
type DefaultHandler func(string)

// Subscribable is implemented by the DefaultWatchers of this package, for users that end before the watcher does.
type Subscribable interface {
	// Subscribe adds a handler as AddHandler does; unsubscribe removes it. Once unsubscribe has returned, no further call
	// of handler begins. It does not wait for a call that is under way.
	Subscribe(handler DefaultHandler) (unsubscribe func())
}

// DefaultTagWebhook is the name of the webhook that says which revision is the default
// one for a control plane in a namespace; "" counts as istio-system.
func DefaultTagWebhook(namespace string) string {
	const name = "istio-revision-tag-default"
	if namespace == "" || namespace == usualNamespace {
		return name
	}
	return name + "-" + namespace
}

// NewDefaultWatcher watches the webhook of a namespace's default tag (DefaultTagWebhook).
// revision is this process's own, which the log mentions.
func NewDefaultWatcher(client kube.Client, revision string, istioNamespace string) DefaultWatcher {
	return NewDefault(client, Config{Revision: revision, Namespace: istioNamespace})
}

// NewDefault is NewDefaultWatcher with all of Config. The watcher it returns also implements
// Reporter, Awaiter and Subscribable.
func NewDefault(client kube.Client, config Config) DefaultWatcher {
	config = config.withDefaults()
	name := DefaultTagWebhook(config.Namespace)
	log := config.Logger.With("webhook", name)
	return &defaultWatcher{
		name: name, revision: config.Revision, log: log,
		broadcaster: newBroadcaster(func(a, b string) bool { return a == b }),
		runner: newRunner(client, log, config.PollInterval, map[string]string{
			"list":  "reading it by get",
			"get":   "the default revision stays as last read, unknown if it never was",
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

// labelled is the revision that the webhook names. A label that is there but empty
// names the revision without a name; one that is not there names none.
func (w *defaultWatcher) labelled(item webhook) string {
	revision, ok := item.Labels[revisionLabel]
	if ok && revision == "" {
		return unnamed
	}
	return revision
}

func (w *defaultWatcher) post(revision string) {
	if before, known := w.broadcaster.read(); !known || before != revision {
		w.log.Info("default revision", "revision", revision, "before", before, "ours", revision == w.revision)
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

// Subscribe is Subscribable's.
func (w *defaultWatcher) Subscribe(handler DefaultHandler) (unsubscribe func()) {
	if handler == nil {
		w.log.Error("handler is nil, it is left out")
		return func() {}
	}
	return w.broadcaster.handle(handler)
}
