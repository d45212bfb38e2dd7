package revisions

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"go.uber.org/atomic"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/hooks"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// pollInterval is the default of Config.PollInterval.
	pollInterval = 5 * time.Second
	// longestPause is the longest pause after a failed request.
	longestPause = 2 * time.Second
)

// Config is the configuration of a watcher.
type Config struct {
	// Revision is the revision of this process. If empty, it is "default".
	Revision string
	// Namespace is the namespace of the control plane. If empty, it is istio-system.
	Namespace string
	// Fallback makes a watcher of the default revision use the webhook of istio-system while DefaultTagWebhook(Namespace) does not
	// exist. Webhooks of other control planes do not count.
	Fallback bool
	// PollInterval is the interval of reads if a permission is missing, for example watch. If zero, it is 5 s.
	PollInterval time.Duration
	// Logger receives changes, and the begin and end of failures. If nil, it is slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Revision = cmp.Or(c.Revision, tagging.Unnamed)
	c.Namespace = cmp.Or(c.Namespace, tagging.UsualNamespace)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.PollInterval <= 0 {
		c.PollInterval = pollInterval
	}
	return c
}

type (
	webhook   = admissionv1.MutatingWebhookConfiguration
	validator = admissionv1.ValidatingWebhookConfiguration
)

// runner runs the goroutines of a watcher.
type runner struct {
	log    *slog.Logger
	client kube.Client
	// poll is the interval of reads if watching is forbidden.
	poll    time.Duration
	running atomic.Bool
	trouble *apirequest.Trouble
	behind  *behind
}

// Problem returns the errors of requests that fail now, because a permission is missing or the server does not respond. It returns nil
// if none fails. A watcher with a problem can be in sync, by means of another permission.
func (r *runner) Problem() error { return r.trouble.Problem() }

// AwaitCurrent implements Tags.
func (r *runner) AwaitCurrent(ctx context.Context) { r.behind.await(ctx) }

func newRunner(client kube.Client, log *slog.Logger, poll time.Duration, instead map[string]string) *runner {
	return &runner{
		log: log, client: client, poll: poll,
		trouble: apirequest.NewTrouble(log, instead), behind: newBehind(),
	}
}

// run runs the followers until stop closes. It returns when they have ended and handlers have returned. A nil stop never closes.
func (r *runner) run(stop <-chan struct{}, handlers *hooks.Queue, followers func() []func(context.Context)) {
	if r.client == nil {
		r.log.Error("no client configured; the default revision will stay unknown")
		return
	}
	if !r.running.CompareAndSwap(false, true) {
		r.log.Error("watcher is already running; ignored the second Run")
		return
	}
	defer r.running.Store(false)
	ctx := wait.ContextForChannel(stop)
	var ended sync.WaitGroup
	for _, follow := range followers() {
		ended.Go(func() { follow(ctx) })
	}
	ended.Wait()
	handlers.Wait(math.MaxInt64)
}

// follow returns a function that follows objects until its context ends. of is appended to the verbs in reports, for a watcher of several
// kinds.
func follow[T watch.Object](r *runner, of string, objects watch.Objects[T]) func(context.Context) {
	return func(ctx context.Context) {
		objects.LongestPause = longestPause
		objects.PollInterval = r.poll
		objects.Tried = func(verb string, err error) {
			r.trouble.Tried(verb+of, err)
			if verb == "list" && err == nil {
				r.trouble.Moot("get" + of) // get is used only if list is forbidden
			}
		}
		objects.Current = func(current bool) {
			if current {
				r.behind.remove(of)
			} else {
				r.behind.add(ctx, of)
			}
		}
		objects.Run(ctx)
		r.behind.remove(of) // no caller may wait for a read that does not happen
	}
}

func webhooks(client kube.Client) watch.Source[*webhook] {
	return watch.SourceOf(client.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations(),
		func(list *admissionv1.MutatingWebhookConfigurationList) []webhook { return list.Items })
}

func services(client kube.Client, namespace string) watch.Source[*corev1.Service] {
	return watch.SourceOf(client.Kube().CoreV1().Services(namespace), func(list *corev1.ServiceList) []corev1.Service { return list.Items })
}

func validators(client kube.Client) watch.Source[*validator] {
	return watch.SourceOf(client.Kube().AdmissionregistrationV1().ValidatingWebhookConfigurations(),
		func(list *admissionv1.ValidatingWebhookConfigurationList) []validator { return list.Items })
}
