package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	admission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

type (
	webhook  = admissionv1.MutatingWebhookConfiguration
	hookList = admissionv1.MutatingWebhookConfigurationList
)

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
	apiwatch.Interface
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

func (s *script) Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
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
func (s *script) source() Source[*webhook] {
	return SourceOf(s, func(list *hookList) []webhook { return list.Items })
}

// heard records the objects that a reflector sends.
type heard []string

func (h *heard) add(all []*webhook) {
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

const (
	longestPause = 2 * time.Second
	pollInterval = 5 * time.Second
)

// follow runs Objects with the webhook "a", or with a label, for a duration and stops them. It returns the errors of the last requests.
func follow(t *testing.T, s *script, h *heard, d time.Duration) (problem error) {
	t.Helper()
	s.began, s.t = time.Now(), t
	if s.label == "" {
		s.name = "a"
	}
	tried := map[string]error{}
	f := Objects[*webhook]{
		Source: s.source(), Name: s.name, Label: s.label, LongestPause: longestPause, PollInterval: pollInterval, Changed: h.add,
		Tried: func(verb string, err error) {
			if verb == "list" && err == nil {
				delete(tried, "get") // get is used only if list is forbidden
			}
			if delete(tried, verb); err != nil {
				tried[verb] = fmt.Errorf("%s: %w", verb, err)
			}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	<-time.After(d)
	synctest.Wait()
	problem = errors.Join(slices.Collect(maps.Values(tried))...)
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

type watchFunc = func(context.Context, int, metav1.ListOptions) (apiwatch.Interface, error)

// opens accepts each watch.
func opens(next func() *apiwatch.FakeWatcher) watchFunc {
	return func(context.Context, int, metav1.ListOptions) (apiwatch.Interface, error) { return next(), nil }
}

// refuses rejects each watch.
func refuses(err error) watchFunc {
	return func(context.Context, int, metav1.ListOptions) (apiwatch.Interface, error) { return nil, err }
}

// quietly is a watch without events.
func quietly() *apiwatch.FakeWatcher { return events() }

// events is a watch that sends the events and stays open until it is stopped.
func events(all ...apiwatch.Event) *apiwatch.FakeWatcher {
	w := apiwatch.NewFakeWithChanSize(len(all), false)
	for _, e := range all {
		w.Action(e.Type, e.Object)
	}
	return w
}

// ends is a watch that the server ends after a duration.
func ends(after time.Duration, all ...apiwatch.Event) *apiwatch.FakeWatcher {
	w := events(all...)
	time.AfterFunc(after, w.Stop)
	return w
}

func event(kind apiwatch.EventType, name, version string) apiwatch.Event {
	item := hook(name, version)
	return apiwatch.Event{Type: kind, Object: &item}
}

func failure(err *apierrors.StatusError) apiwatch.Event {
	return apiwatch.Event{Type: apiwatch.Error, Object: &err.ErrStatus}
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
