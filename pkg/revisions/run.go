package revisions

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/atomic"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// revisionLabel of a webhook names a revision; of any object, the one it asks for.
	revisionLabel = "istio.io/rev"
	// tagLabel of a webhook makes its revision reachable under a further name.
	tagLabel = "istio.io/tag"
	// unnamed is the revision that an empty name stands for.
	unnamed = "default"
	// usualNamespace is the one whose default tag has no suffix.
	usualNamespace = "istio-system"
	// pollInterval is Config.PollInterval's default.
	pollInterval = 5 * time.Second
)

// Config of a watcher.
type Config struct {
	// Revision is the watcher's own; "" counts as "default".
	Revision string
	// Namespace is the control plane's; "" counts as istio-system.
	Namespace string
	// PollInterval is how often to read where a permission is missing, watch above all;
	// 0 counts as 5 s.
	PollInterval time.Duration
	// Logger receives what begins and ends to fail, and changes; nil means slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Revision == "" {
		c.Revision = unnamed
	}
	if c.Namespace == "" {
		c.Namespace = usualNamespace
	}
	if c.PollInterval <= 0 {
		c.PollInterval = pollInterval
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Reporter is implemented by the watchers of this package.
type Reporter interface {
	// Problem says which requests fail at present: for a missing permission, or because the
	// server does not answer; nil when all is well. A watcher with a problem may still be in sync, by a
	// permission that it has instead.
	Problem() error
}

// Awaiter is implemented by the watchers of this package, for controllers whose writes depend on what these have read.
type Awaiter interface {
	// AwaitCurrent returns while changes are being seen, or polled for. When a watch has broken off, as by a
	// restart of the API server, it waits until all has been read again: until then the watcher may be
	// wrong, and a write that depends on it may undo that of the right revision. It waits no longer than until ctx
	// ends, and two minutes from when the watch broke off.
	AwaitCurrent(ctx context.Context)
}

type (
	webhook   = admissionv1.MutatingWebhookConfiguration
	validator = admissionv1.ValidatingWebhookConfiguration
)

// runner runs the goroutines of a watcher.
type runner struct {
	log     *slog.Logger
	client  kube.Client
	poll    time.Duration
	running atomic.Bool
	trouble *kube.Trouble
	behind  *behind
}

// Problem is Reporter's.
func (r *runner) Problem() error { return r.trouble.Problem() }

// AwaitCurrent is Awaiter's.
func (r *runner) AwaitCurrent(ctx context.Context) { r.behind.await(ctx) }

func newRunner(client kube.Client, log *slog.Logger, poll time.Duration, instead map[string]string) *runner {
	return &runner{
		log: log, client: client, poll: poll,
		trouble: kube.NewTrouble(log, instead), behind: newBehind(),
	}
}

// reflection is one of the reflectors of a watcher: made for the client and run.
type reflection func(context.Context, *runner)

// run follows and delivers until stop closes, and returns when all have ended. A
// nil stop never closes.
func (r *runner) run(stop <-chan struct{}, deliver func(context.Context), all ...reflection) {
	if r.client == nil {
		r.log.Error("watcher has no client, it will know nothing")
		return
	}
	if !r.running.CompareAndSwap(false, true) {
		r.log.Error("watcher runs already, its second Run does nothing")
		return
	}
	defer r.running.Store(false)
	ctx := wait.ContextForChannel(stop)
	var ended sync.WaitGroup
	for _, reflect := range all {
		ended.Go(func() { reflect(ctx, r) })
	}
	ended.Go(func() { deliver(ctx) })
	ended.Wait()
}

// webhooks follows MutatingWebhookConfigurations.
func webhooks(f reflector[webhook]) reflection {
	return func(ctx context.Context, r *runner) {
		f.source = sourceOf(r.client.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations(),
			func(list *admissionv1.MutatingWebhookConfigurationList) []webhook { return list.Items })
		f.runFor(ctx, r)
	}
}

// services follows Services of a namespace.
func services(namespace string, f reflector[corev1.Service]) reflection {
	return func(ctx context.Context, r *runner) {
		f.source = sourceOf(r.client.Kube().CoreV1().Services(namespace),
			func(list *corev1.ServiceList) []corev1.Service { return list.Items })
		f.runFor(ctx, r)
	}
}

// validators follows ValidatingWebhookConfigurations.
func validators(f reflector[validator]) reflection {
	return func(ctx context.Context, r *runner) {
		f.source = sourceOf(r.client.Kube().AdmissionregistrationV1().ValidatingWebhookConfigurations(),
			func(list *admissionv1.ValidatingWebhookConfigurationList) []validator { return list.Items })
		f.runFor(ctx, r)
	}
}

// runFor runs the reflector as a watcher's.
func (f *reflector[T]) runFor(ctx context.Context, r *runner) {
	f.poll, f.trouble, f.behind = r.poll, r.trouble, r.behind
	f.run(ctx)
}
