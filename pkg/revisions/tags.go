package revisions

import (
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/kube"
)

// TagWatcher knows under which names one revision is reachable. Its methods may be
// called from any goroutine.
//
// A tag is a MutatingWebhookConfiguration or, in the control plane's namespace, a Service
// with the labels istio.io/tag and istio.io/rev. Where both have a tag, the Service counts:
// istiod takes a tag from either, so two of its revisions call an object theirs while the
// two disagree, and its log names the webhook as the one to delete.
type TagWatcher interface {
	// Run follows the tags until stopCh closes, as DefaultWatcher's does.
	Run(stopCh <-chan struct{})
	// HasSynced reports whether webhooks, Services and the default validator have been
	// read at least once. Services and the validator count as absent when reading them is
	// forbidden from the start.
	HasSynced() bool
	// AddHandler has handler called by Run with the present tags, once HasSynced, and
	// whenever they or what IsMine says change. It stays for as long as the watcher: its
	// users, the controllers of a process, are made once, together with it.
	AddHandler(handler TagHandler)
	// GetMyTags is the revision's own name and its tags, the caller's to change.
	GetMyTags() sets.Set[string]
	// IsMine reports whether an object, or a namespace, belongs to the revision: by its
	// label istio.io/rev, which names the revision or a tag of it. One without the
	// label belongs to the revision with the tag default; where there is no such tag, to the
	// revision of the ValidatingWebhookConfiguration istiod-default-validator; and where
	// there is none either, to the revision without a name. Inherited gives an object the
	// label of its namespace.
	IsMine(metav1.ObjectMeta) bool
}

// Inherited is an object's metadata with the revision of its namespace, given by the
// namespace's labels, unless it has a label of its own.
func Inherited(object metav1.ObjectMeta, namespace map[string]string) metav1.ObjectMeta {
	revision, there := namespace[revisionLabel]
	if _, own := object.Labels[revisionLabel]; own || !there {
		return object
	}
	labels := maps.Clone(object.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[revisionLabel] = revision
	object.Labels = labels
	return object
}

// DefaultValidator is the name of the ValidatingWebhookConfiguration that validates what no revision's own
// does.
const DefaultValidator = "istiod-default-validator"

// TagHandler is called with the revision's own name and its tags. The set is the handler's.
type TagHandler func(sets.Set[string])

// NewTagWatcher watches the tags of a revision, "" for the one without a name.
// Webhooks that call a service of another namespace than systemNamespace are tags of
// another control plane.
func NewTagWatcher(client kube.Client, revision string, systemNamespace string) TagWatcher {
	return NewTags(client, Config{Revision: revision, Namespace: systemNamespace})
}

// NewTags is NewTagWatcher with all of Config. The watcher it returns also implements Reporter
// and Awaiter.
func NewTags(client kube.Client, config Config) TagWatcher {
	config = config.withDefaults()
	log := config.Logger.With("revision", config.Revision)
	every := "reading them every " + config.PollInterval.String()
	return &tagWatcher{
		revision: config.Revision, namespace: config.Namespace, log: log,
		broadcaster: newBroadcaster(tags.equal), webhooks: tagged{}, services: tagged{},
		unread: sets.New(ofWebhooks, ofServices, ofValidator),
		runner: newRunner(client, log, config.PollInterval, map[string]string{
			"list":                "the tags stay as last read",
			"watch":               every,
			"list" + ofServices:   "tags of Services stay as last read, none if they never were",
			"watch" + ofServices:  every,
			"list" + ofValidator:  "reading it by get",
			"get" + ofValidator:   "the default validator counts as last read, as absent if it never was",
			"watch" + ofValidator: "reading it every " + config.PollInterval.String(),
		}),
	}
}

// What a watcher of tags reads, as it is said of a trouble.
const (
	ofWebhooks  = ""
	ofServices  = " services"
	ofValidator = " validator"
)

type tagWatcher struct {
	revision, namespace string
	log                 *slog.Logger
	broadcaster         *broadcaster[tags]
	*runner

	// mu orders the reflectors, each of which has a goroutine of its own. What they have
	// read so far is below.
	mu                 sync.Mutex
	unread             sets.Set[string]
	webhooks, services tagged
	// validator is the revision of the default validator, "" when there is none.
	validator string
}

// tagged has the tags of one kind of object, by the objects' names.
type tagged map[string]tag

type tag struct{ name, revision string }

// tags are the names of the revision, and those that are tags of another one. A set in
// here is never changed.
type tags struct {
	mine, others sets.Set[string]
	// unlabelled says that objects without a label are the revision's.
	unlabelled bool
}

func (t tags) equal(other tags) bool {
	return t.mine.Equal(other.mine) && t.others.Equal(other.others) && t.unlabelled == other.unlabelled
}

func (w *tagWatcher) Run(stopCh <-chan struct{}) {
	w.run(stopCh, w.broadcaster.deliver,
		webhooks(reflector[webhook]{label: tagLabel, of: ofWebhooks, to: w.sink()}),
		services(w.namespace, reflector[corev1.Service]{label: tagLabel, of: ofServices, optional: true, to: w.serviceSink()}),
		validators(reflector[validator]{name: DefaultValidator, of: ofValidator, optional: true, to: w.validatorSink()}))
}

func (w *tagWatcher) sink() sink[webhook] {
	return tagSink(w, ofWebhooks, w.webhooks, func(item webhook) (name string, got tag, ok bool) {
		got, ok = tagOf(item.Labels)
		return item.Name, got, ok && w.concerns(item)
	})
}

func (w *tagWatcher) serviceSink() sink[corev1.Service] {
	return tagSink(w, ofServices, w.services, func(item corev1.Service) (name string, got tag, ok bool) {
		got, ok = tagOf(item.Labels)
		return item.Name, got, ok
	})
}

// tagSink keeps the tags of one kind of objects.
func tagSink[T any](w *tagWatcher, of string, known tagged, read func(T) (name string, got tag, ok bool)) sink[T] {
	take := func(item T) {
		name, got, ok := read(item)
		delete(known, name)
		if ok {
			known[name] = got
		}
	}
	return sink[T]{
		replace: func(all []T) {
			w.change(of, func() {
				clear(known)
				for _, item := range all {
					take(item)
				}
			})
		},
		set:    func(item T) { w.change(of, func() { take(item) }) },
		remove: func(name string) { w.change(of, func() { delete(known, name) }) },
	}
}

func (w *tagWatcher) validatorSink() sink[validator] {
	to := func(revision string) { w.change(ofValidator, func() { w.validator = revision }) }
	return sink[validator]{
		replace: func(all []validator) {
			if len(all) == 0 {
				to("")
				return
			}
			to(w.validates(all[0]))
		},
		set:    func(item validator) { to(w.validates(item)) },
		remove: func(string) { to("") },
	}
}

// validates is the revision that a default validator names, "" for none of this control plane.
func (w *tagWatcher) validates(item validator) string {
	for _, hook := range item.Webhooks {
		if service := hook.ClientConfig.Service; service != nil && service.Namespace != w.namespace {
			return ""
		}
	}
	return named(item.Labels)
}

// named is the revision that labels name: the one without a name for an empty label, and
// "" without the label.
func named(labels map[string]string) string {
	revision, labelled := labels[revisionLabel]
	if labelled && revision == "" {
		return unnamed
	}
	return revision
}

// tagOf is the tag that labels tell of.
func tagOf(labels map[string]string) (got tag, ok bool) {
	got = tag{labels[tagLabel], named(labels)}
	return got, got.name != "" && got.revision != ""
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

// change takes what was read of one kind. The tags are known once each kind was read.
func (w *tagWatcher) change(of string, take func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	take()
	w.unread.Delete(of)
	if len(w.unread) == 0 {
		w.post()
	}
}

func (w *tagWatcher) post() {
	t := w.read()
	if before, _ := w.broadcaster.read(); !before.equal(t) { // of none, too: there is one's own always
		w.log.Info("tags", "mine", sets.List(t.mine), "others", sets.List(t.others), "unlabelled", t.unlabelled)
	}
	w.broadcaster.post(t)
}

// read combines what was read of all kinds.
func (w *tagWatcher) read() tags {
	t := tags{mine: sets.New(w.revision), others: sets.New[string]()}
	defaultTag := false
	take := func(got tag) {
		defaultTag = defaultTag || got.name == unnamed
		if got.revision == w.revision {
			t.mine.Insert(got.name)
		} else {
			t.others.Insert(got.name)
		}
	}
	byService := sets.New[string]()
	for _, got := range w.services {
		byService.Insert(got.name)
		take(got)
	}
	for _, got := range w.webhooks {
		if !byService.Has(got.name) {
			take(got)
		}
	}
	t.unlabelled = t.isMine(unnamed, w.revision)
	if !defaultTag && w.validator != "" {
		t.unlabelled = w.validator == w.revision
	}
	return t
}

// isMine reports whether a label's value names the revision.
func (t tags) isMine(name, revision string) bool {
	if name == revision {
		// A tag of the same name takes it away: with the default tag on another
		// revision, the one without a name is no longer the default.
		return !t.others.Has(name)
	}
	return t.mine.Has(name)
}

func (w *tagWatcher) HasSynced() bool {
	_, known := w.broadcaster.read()
	return known
}

func (w *tagWatcher) GetMyTags() sets.Set[string] { return w.present().mine.Clone() }

func (w *tagWatcher) IsMine(object metav1.ObjectMeta) bool {
	t := w.present()
	if name := object.Labels[revisionLabel]; name != "" {
		return t.isMine(name, w.revision)
	}
	return t.unlabelled
}

// present is the tags as last read; before the first reading, the revision's own name.
func (w *tagWatcher) present() tags {
	t, known := w.broadcaster.read()
	if !known {
		return tags{mine: sets.New(w.revision), unlabelled: w.revision == unnamed}
	}
	return t
}

func (w *tagWatcher) AddHandler(handler TagHandler) {
	if handler == nil {
		w.log.Error("handler is nil, it is left out")
		return
	}
	w.broadcaster.handle(func(t tags) { handler(t.mine.Clone()) })
}
