package revisions

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	admission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

type hookList = admissionv1.MutatingWebhookConfigurationList

var (
	hooksResource = schema.GroupResource{Resource: "mutatingwebhookconfigurations"}
	forbidden     = apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	refused       = apierrors.NewInternalError(errors.New("no"))
)

// script responds to the requests of a reflector and records their times, in a synctest bubble.
type script struct {
	admission.MutatingWebhookConfigurationInterface
	t *testing.T
	// name or label must be in each list and watch.
	name, label string
	began       time.Time
	calls       []call
	list        func(n int) (*hookList, error)
	get         func(n int) (*webhook, error)
	watch       watchFunc
}

type call struct {
	verb  string
	at    time.Duration
	from  string // version of a watch
	ctx   context.Context
	shown *shown
}

// shown is a watch that records whether it was stopped.
type shown struct {
	watch.Interface
	stopped bool
}

func (s *shown) Stop() {
	s.stopped = true
	s.Interface.Stop()
}

func (s *script) note(ctx context.Context, verb, from string) int {
	n := s.count(verb)
	if verb == "list" {
		s.left()
	}
	s.calls = append(s.calls, call{verb: verb, at: time.Since(s.began), from: from, ctx: ctx})
	return n
}

// left checks that all requests have ended.
func (s *script) left() {
	for i, c := range s.calls {
		if c.ctx.Err() == nil {
			s.t.Errorf("the context of request %d, %s, continues after its round", i, c.verb)
		}
		if c.shown != nil && !c.shown.stopped {
			s.t.Errorf("the watch of request %d was not ended", i)
		}
	}
}

// asked checks the options of a list or watch.
func (s *script) asked(verb string, options metav1.ListOptions) {
	want := metav1.ListOptions{LabelSelector: s.label}
	if s.name != "" {
		want = metav1.ListOptions{FieldSelector: "metadata.name=" + s.name}
	}
	if verb == "watch" {
		want.ResourceVersion, want.TimeoutSeconds, want.AllowWatchBookmarks = options.ResourceVersion, options.TimeoutSeconds, true
		if options.TimeoutSeconds == nil || *options.TimeoutSeconds < 300 || *options.TimeoutSeconds > 600 {
			s.t.Errorf("a watch without its bound: %v", options.TimeoutSeconds)
		}
	}
	if options != want {
		s.t.Errorf("%s asks for %+v, want %+v", verb, options, want)
	}
}

func (s *script) count(verb string) (n int) {
	for _, c := range s.calls {
		if c.verb == verb {
			n++
		}
	}
	return n
}

func (s *script) List(ctx context.Context, options metav1.ListOptions) (*hookList, error) {
	n := s.note(ctx, "list", "")
	s.asked("list", options)
	if s.list == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.list(n)
}

func (s *script) Get(ctx context.Context, name string, _ metav1.GetOptions) (*webhook, error) {
	n := s.note(ctx, "get", "")
	if name != s.name {
		s.t.Errorf("get of %q", name)
	}
	if s.get == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.get(n)
}

func (s *script) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	n := s.note(ctx, "watch", options.ResourceVersion)
	s.asked("watch", options)
	w, err := s.watch(ctx, n, options)
	if err != nil {
		return nil, err
	}
	at := &s.calls[len(s.calls)-1]
	at.shown = &shown{Interface: w}
	return at.shown, nil
}

// source returns a source that uses the script.
func (s *script) source() source[webhook] {
	return sourceOf(s, func(list *hookList) []webhook { return list.Items })
}

// heard records the objects that a reflector sends.
type heard []string

func (h *heard) add(all []webhook) {
	what := "all:"
	for _, item := range all {
		what += " " + item.Name + "@" + item.ResourceVersion
	}
	*h = append(*h, what)
}

func (h heard) count(what string) (n int) {
	for _, one := range h {
		if one == what {
			n++
		}
	}
	return n
}

// follow runs a reflector of the webhook "a" for a duration and stops it.
func follow(t *testing.T, s *script, h *heard, d time.Duration) (problem error) {
	t.Helper()
	s.began, s.t = time.Now(), t
	if s.label == "" {
		s.name = "a"
	}
	r := newRunner(nil, slog.New(slog.DiscardHandler), 5*time.Second, nil)
	f := reflector[webhook]{runner: r, source: s.source(), name: s.name, label: s.label, to: h.add}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx)
	}()
	<-time.After(d)
	synctest.Wait()
	problem = f.trouble.Problem()
	cancel()
	synctest.Wait()
	select {
	case <-ended:
	default:
		t.Error("it continues after its end")
		<-ended
	}
	s.left()
	calls := len(s.calls)
	<-time.After(time.Hour)
	if got := len(s.calls) - calls; got != 0 {
		t.Errorf("%d requests after its end", got)
	}
	return problem
}

func hook(name, version string) webhook {
	return webhook{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func listed(version string, items ...webhook) (*hookList, error) {
	return &hookList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}, nil
}

// lists returns the same webhooks for each list.
func lists(version string, items ...webhook) func(int) (*hookList, error) {
	return func(int) (*hookList, error) { return listed(version, items...) }
}

// fails returns an error for each list or get.
func fails[T any](err error) func(int) (*T, error) { return func(int) (*T, error) { return nil, err } }

// finds returns the webhook "a" for each get.
func finds(version string) func(int) (*webhook, error) {
	return func(int) (*webhook, error) { item := hook("a", version); return &item, nil }
}

type watchFunc = func(context.Context, int, metav1.ListOptions) (watch.Interface, error)

// opens accepts each watch.
func opens(next func() *watch.FakeWatcher) watchFunc {
	return func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return next(), nil }
}

// refuses rejects each watch.
func refuses(err error) watchFunc {
	return func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, err }
}

// quietly is a watch without events.
func quietly() *watch.FakeWatcher { return events() }

// events is a watch that sends the events and stays open until it is stopped.
func events(all ...watch.Event) *watch.FakeWatcher {
	w := watch.NewFakeWithChanSize(len(all), false)
	for _, e := range all {
		w.Action(e.Type, e.Object)
	}
	return w
}

// ends is a watch that the server ends after a duration.
func ends(after time.Duration, all ...watch.Event) *watch.FakeWatcher {
	w := events(all...)
	time.AfterFunc(after, w.Stop)
	return w
}

func event(kind watch.EventType, name, version string) watch.Event {
	item := hook(name, version)
	return watch.Event{Type: kind, Object: &item}
}

func failure(err *apierrors.StatusError) watch.Event {
	return watch.Event{Type: watch.Error, Object: &err.ErrStatus}
}

// tries returns the times between the requests of a verb.
func (s *script) tries(verb string) (waits []time.Duration) {
	last := time.Duration(-1)
	for _, c := range s.calls {
		if c.verb != verb {
			continue
		}
		if last >= 0 {
			waits = append(waits, c.at-last)
		}
		last = c.at
	}
	return waits
}
