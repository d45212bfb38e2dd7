package revisions

import (
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/kube"
)

// TagWatcher knows under which names one revision is reachable. Its methods may be
// called from any goroutine.
type TagWatcher interface {
	// Run follows the webhooks until stopCh closes, as DefaultWatcher's does.
	Run(stopCh <-chan struct{})
	// HasSynced reports whether the webhooks have been read at least once.
	HasSynced() bool
	// AddHandler has handler called by Run with the present tags, once HasSynced, and
	// whenever they or what IsMine says change.
	AddHandler(handler TagHandler)
	// GetMyTags is the revision's own name and its tags, the caller's to change.
	GetMyTags() sets.Set[string]
	// IsMine reports whether an object, or a namespace, belongs to the revision: by its
	// label istio.io/rev, which names the revision or a tag of it. One without the
	// label belongs to whoever has the tag default.
	IsMine(metav1.ObjectMeta) bool
}

// TagHandler is told the revision's own name and its tags. The set is the handler's.
type TagHandler func(sets.Set[string])

// NewTagWatcher watches the tags of a revision, "" for the one without a name.
// Webhooks that call a service of another namespace than systemNamespace are tags of
// another control plane.
func NewTagWatcher(client kube.Client, revision string, systemNamespace string) TagWatcher {
	return NewTags(client, Config{Revision: revision, Namespace: systemNamespace})
}

// NewTags is NewTagWatcher with a logger. The watcher is a Reporter too.
func NewTags(client kube.Client, config Config) TagWatcher {
	config = config.withDefaults()
	log := config.Logger.With("revision", config.Revision)
	return &tagWatcher{
		revision: config.Revision, namespace: config.Namespace, log: log,
		board: newBoard(tags.equal), webhooks: map[string]tagged{},
		runner: newRunner(client, log, config.PollInterval, map[string]string{
			"list":  "the tags stay as last read",
			"watch": "reading them every " + config.PollInterval.String(),
		}),
	}
}

type tagWatcher struct {
	revision, namespace string
	log                 *slog.Logger
	board               *board[tags]
	runner              *runner
	// webhooks are those read so far; only the follower's goroutine touches them.
	webhooks map[string]tagged
}

// tagged is what one webhook says.
type tagged struct{ tag, revision string }

// tags are the names of the revision, and those that are tags of another one. A set in
// here is never changed.
type tags struct{ mine, others sets.Set[string] }

func (t tags) equal(other tags) bool {
	return t.mine.Equal(other.mine) && t.others.Equal(other.others)
}

func (w *tagWatcher) Run(stopCh <-chan struct{}) {
	w.runner.run(stopCh, follower{label: tagLabel, to: w.sink()}, w.board.deliver)
}

func (w *tagWatcher) sink() sink {
	return sink{
		replace: func(all []webhook) {
			clear(w.webhooks)
			for _, item := range all {
				w.take(item)
			}
			w.post()
		},
		set: func(item webhook) {
			w.take(item)
			w.post()
		},
		remove: func(name string) {
			delete(w.webhooks, name)
			w.post()
		},
	}
}

func (w *tagWatcher) take(item webhook) {
	delete(w.webhooks, item.Name)
	tag, revision := item.Labels[tagLabel], item.Labels[revisionLabel]
	if _, labelled := item.Labels[revisionLabel]; !labelled || tag == "" || !w.concerns(item) {
		return
	}
	if revision == "" {
		revision = unnamed
	}
	w.webhooks[item.Name] = tagged{tag, revision}
}

// concerns reports whether a webhook is this control plane's: not when all that it
// calls are services of other namespaces.
func (w *tagWatcher) concerns(item webhook) bool {
	if len(item.Webhooks) == 0 {
		return true
	}
	for _, hook := range item.Webhooks {
		if service := hook.ClientConfig.Service; service == nil || service.Namespace == w.namespace {
			return true
		}
	}
	return false
}

func (w *tagWatcher) post() {
	t := tags{mine: sets.New(w.revision), others: sets.New[string]()}
	for _, webhook := range w.webhooks {
		if webhook.revision == w.revision {
			t.mine.Insert(webhook.tag)
		} else {
			t.others.Insert(webhook.tag)
		}
	}
	if before, _ := w.board.read(); !before.equal(t) { // of none, too: there is one's own always
		w.log.Info("tags", "mine", sets.List(t.mine), "others", sets.List(t.others))
	}
	w.board.post(t)
}

func (w *tagWatcher) HasSynced() bool {
	_, known := w.board.read()
	return known
}

func (w *tagWatcher) GetMyTags() sets.Set[string] { return w.present().mine.Clone() }

func (w *tagWatcher) IsMine(object metav1.ObjectMeta) bool {
	name := object.Labels[revisionLabel]
	if name == "" {
		name = unnamed
	}
	t := w.present()
	if name == w.revision {
		// A tag of the same name takes it away: with the default tag on another
		// revision, the one without a name is no longer the default.
		return !t.others.Has(name)
	}
	return t.mine.Has(name)
}

// present is what is known; before anything is, the revision's own name.
func (w *tagWatcher) present() tags {
	t, known := w.board.read()
	if !known {
		return tags{mine: sets.New(w.revision)}
	}
	return t
}

func (w *tagWatcher) AddHandler(handler TagHandler) {
	if handler == nil {
		w.log.Error("handler is nil, it is left out")
		return
	}
	w.board.handle(func(t tags) { handler(t.mine.Clone()) })
}

// Problem is Reporter's.
func (w *tagWatcher) Problem() error { return w.runner.trouble.Problem() }
