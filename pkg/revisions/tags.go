package revisions

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pkg/kube"
)

// TagWatcher watches the tags of one revision. Its methods are safe for concurrent use.
//
// A tag is a MutatingWebhookConfiguration or, in the namespace of the control plane, a Service with the labels istio.io/tag and
// istio.io/rev. If several revisions claim a tag, Resolve selects one. istiod counts each claim, so two of its revisions own an object
// then.
type TagWatcher interface {
	// Run follows the tags until stopCh closes, like DefaultWatcher.Run.
	Run(stopCh <-chan struct{})
	// HasSynced reports whether webhooks, Services and the default validator have been read at least once. Services and the
	// validator count as absent if reading them is forbidden from the start.
	HasSynced() bool
	// AddHandler adds a handler. Run calls it with the current tags when HasSynced is true, and whenever the tags or a result of
	// IsMine change. It cannot be removed.
	AddHandler(handler TagHandler)
	// GetMyTags returns the name of the revision and its tags, in a new set.
	GetMyTags() sets.Set[string]
	// IsMine reports whether an object or a namespace belongs to the revision: its label istio.io/rev names the revision or one of
	// its tags. An object without the label belongs to the revision with the tag default. Without that tag, it belongs to the
	// revision of the ValidatingWebhookConfiguration istiod-default-validator, and without that to the revision without a name.
	// The caller adds the label of the namespace to an object without one.
	IsMine(metav1.ObjectMeta) bool
}

// Tags is the watcher of NewTags. Its handlers are also called when a result of HasTag or Conflicts changes.
type Tags interface {
	TagWatcher
	// AwaitCurrent returns immediately while the watcher sees or polls changes. If a watch has ended, for example because the API
	// server restarts, AwaitCurrent waits until all objects have been read again. Until then the watcher may be wrong, and a write
	// that depends on it may revert a write of the right revision. It waits until ctx ends, and at most two minutes after the end
	// of the watch.
	AwaitCurrent(ctx context.Context)
	// HasTag reports whether a name is the own revision or a tag of any revision, also of a control plane in another namespace.
	HasTag(name string) bool
	// Conflicts returns the tags that several revisions claim, in the order of their names.
	Conflicts() []tagging.Conflict
}

// TagHandler receives the name of the revision and its tags, in a new set.
type TagHandler func(sets.Set[string])

// NewTagWatcher returns a watcher of the tags of a revision. An empty revision is the revision without a name. Webhooks that call a
// Service outside systemNamespace are tags of another control plane.
func NewTagWatcher(client kube.Client, revision string, systemNamespace string) TagWatcher {
	return NewTags(client, Config{Revision: revision, Namespace: systemNamespace})
}

// NewTags returns a watcher with a complete Config.
func NewTags(client kube.Client, config Config) Tags {
	config = config.withDefaults()
	log := config.Logger.With("revision", config.Revision)
	every := "reading them every " + config.PollInterval.String()
	return &tagWatcher{
		revision: config.Revision, namespace: config.Namespace, log: log,
		broadcaster: newBroadcaster(tags.equal), unread: sets.New(ofWebhooks, ofServices, ofValidator),
		runner: newRunner(client, log, config.PollInterval, map[string]string{
			"list":                "keeping the tags that were read last",
			"watch":               every,
			"list" + ofServices:   "keeping the tags of Services that were read last, if any",
			"watch" + ofServices:  every,
			"list" + ofValidator:  "reading it with get",
			"get" + ofValidator:   "keeping the default validator that was read last, if any",
			"watch" + ofValidator: "reading it every " + config.PollInterval.String(),
		}),
	}
}

// Suffixes of verbs in reports, one for each kind that a watcher of tags reads.
const (
	ofWebhooks  = ""
	ofServices  = " services"
	ofValidator = " validator"
)

type tagWatcher struct {
	revision, namespace string
	log                 *slog.Logger
	*broadcaster[tags]
	*runner

	// mu guards the fields below. Each follower has its own goroutine.
	mu                 sync.Mutex
	unread             sets.Set[string]
	webhooks, services []tagging.Claim
	// validator is the revision of the default validator, or "".
	validator string
}

// tags has the names of the revision, and the tags of other revisions and of other control planes. It is never changed.
type tags struct {
	mine, others, elsewhere sets.Set[string]
	// unlabelled reports whether objects without a label belong to the revision.
	unlabelled bool
	conflicts  []tagging.Conflict
}

func (t tags) equal(other tags) bool {
	return t.mine.Equal(other.mine) && t.others.Equal(other.others) && t.elsewhere.Equal(other.elsewhere) && t.unlabelled == other.unlabelled &&
		reflect.DeepEqual(t.conflicts, other.conflicts)
}

func (w *tagWatcher) Run(stopCh <-chan struct{}) {
	w.run(stopCh, &w.broadcaster.calls, func() []func(context.Context) {
		return []func(context.Context){
			follow(w.runner, ofWebhooks, watch.Objects[*webhook]{Source: webhooks(w.client), Label: tagging.TagLabel, Changed: w.readWebhooks}),
			follow(w.runner, ofServices, watch.Objects[*corev1.Service]{
				Source: services(w.client, w.namespace), Label: tagging.TagLabel, Optional: true, Changed: w.readServices,
			}),
			follow(w.runner, ofValidator, watch.Objects[*validator]{
				Source: validators(w.client), Name: tagging.DefaultValidator, Optional: true, Changed: w.readValidator,
			}),
		}
	})
}

func (w *tagWatcher) readWebhooks(all []*webhook) {
	var claims []tagging.Claim
	for _, item := range all {
		claim, ok := tagging.WebhookClaim(item, w.namespace)
		claim.Elsewhere = !ok
		if claim.Tag != "" && claim.Revision != "" {
			claims = append(claims, claim)
		}
	}
	w.change(ofWebhooks, func() { w.webhooks = claims })
}

func (w *tagWatcher) readServices(all []*corev1.Service) {
	var claims []tagging.Claim
	for _, item := range all {
		if claim, ok := tagging.ServiceClaim(item); ok {
			claims = append(claims, claim)
		}
	}
	w.change(ofServices, func() { w.services = claims })
}

func (w *tagWatcher) readValidator(found []*validator) {
	revision := ""
	for _, item := range found {
		revision = w.validates(item)
	}
	w.change(ofValidator, func() { w.validator = revision })
}

// validates returns the revision of a default validator, or "" if it belongs to another control plane.
func (w *tagWatcher) validates(item *validator) string {
	for _, hook := range item.Webhooks {
		if service := hook.ClientConfig.Service; service != nil && service.Namespace != w.namespace {
			return ""
		}
	}
	return tagging.Named(item.Labels)
}

// change applies a change of one kind. The tags count after each kind has been read.
func (w *tagWatcher) change(of string, set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
	w.unread.Delete(of)
	if len(w.unread) == 0 {
		w.post()
	}
}

func (w *tagWatcher) post() {
	t := w.read()
	if before, _ := w.broadcaster.read(); !before.equal(t) { // the name of the revision is always a tag, so an unknown value differs
		w.log.Info("tags changed", "mine", sets.List(t.mine), "others", sets.List(t.others), "unlabelled", t.unlabelled)
	}
	w.broadcaster.post(t)
}

// read returns the tags of all kinds.
func (w *tagWatcher) read() tags {
	t := tags{mine: sets.New(w.revision), others: sets.New[string](), elsewhere: sets.New[string]()}
	claims := slices.DeleteFunc(slices.Concat(w.services, w.webhooks), func(c tagging.Claim) bool {
		if c.Elsewhere {
			t.elsewhere.Insert(c.Tag)
		}
		return c.Elsewhere
	})
	var used map[string]tagging.Claim
	used, t.conflicts = tagging.Resolve(w.namespace, claims)
	for name, claim := range used {
		if claim.Revision == w.revision {
			t.mine.Insert(name)
		} else {
			t.others.Insert(name)
		}
	}
	t.unlabelled = t.isMine(tagging.Unnamed, w.revision)
	if _, found := used[tagging.Unnamed]; !found && w.validator != "" {
		t.unlabelled = w.validator == w.revision
	}
	return t
}

// isMine reports whether the value of a label names the revision.
func (t tags) isMine(name, revision string) bool {
	if name == revision {
		// A tag with the name of this revision overrides the name. For example, if the tag default is on another revision, the
		// revision without a name is not the default.
		return !t.others.Has(name)
	}
	return t.mine.Has(name)
}

func (w *tagWatcher) HasTag(name string) bool {
	t := w.current()
	return t.mine.Has(name) || t.others.Has(name) || t.elsewhere.Has(name)
}

func (w *tagWatcher) GetMyTags() sets.Set[string] { return w.current().mine.Clone() }

// Conflicts implements Tags.
func (w *tagWatcher) Conflicts() []tagging.Conflict { return slices.Clone(w.current().conflicts) }

func (w *tagWatcher) IsMine(object metav1.ObjectMeta) bool {
	t := w.current()
	if name := object.Labels[tagging.Label]; name != "" {
		return t.isMine(name, w.revision)
	}
	return t.unlabelled
}

// current returns the tags that were read last. Before the first read it returns the name of the revision only.
func (w *tagWatcher) current() tags {
	t, known := w.broadcaster.read()
	if !known {
		return tags{mine: sets.New(w.revision), unlabelled: w.revision == tagging.Unnamed}
	}
	return t
}

func (w *tagWatcher) AddHandler(handler TagHandler) {
	if handler == nil {
		w.log.Error("handler is nil; ignored it")
		return
	}
	w.broadcaster.handle(func(t tags) { handler(t.mine.Clone()) })
}
