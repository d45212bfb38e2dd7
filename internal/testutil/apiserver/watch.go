package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one open watch. Its goroutine sends events when they are due. The server only appends to the queue.
type watcher struct {
	client  *Client
	matches func(key string, o object) bool
	results chan watch.Event
	wake    chan struct{}
	gone    chan struct{}
	once    sync.Once

	mu    sync.Mutex
	queue []queued
}

type queued struct {
	event watch.Event
	due   time.Time
	last  bool
}

// watch starts a watch. Without a version it begins with the current objects, and with a bookmark if the client asks where they end.
// With a version it begins with all later changes.
func (c *Client) watch(ctx context.Context, r Request) (any, error) {
	matches, err := selector(r)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		client: c, matches: matches,
		results: make(chan watch.Event), wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.catchUp(w, r); err != nil {
		return nil, err
	}
	s.watchers = append(s.watchers, w)
	limit, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	go w.run(ctx, time.Duration(limit)*time.Second)
	return w, nil
}

// catchUp queues the first events. The caller holds mu.
func (s *Server) catchUp(w *watcher, r Request) error {
	query := r.URL.Query()
	from := query.Get("resourceVersion")
	initial := query.Get("sendInitialEvents") == "true"
	if initial || from == "" || from == "0" {
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			w.add(Event{Kind: watch.Added, key: key, Object: s.objects[key]}, time.Now())
		}
		if initial {
			bookmark := object(&unstructured.Unstructured{Object: map[string]any{"apiVersion": r.Version.String(), "kind": kindOf(r)}})
			bookmark.SetResourceVersion(format(s.version))
			bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			w.enqueue(watch.Event{Type: watch.Bookmark, Object: bookmark}, time.Now())
		}
		return nil
	}
	after, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest("invalid resourceVersion: " + from)
	}
	for _, e := range s.history {
		if e.Version > after {
			w.add(e, e.At.Add(w.client.latency()))
		}
	}
	return nil
}

// add queues an event if the watch selects its object.
func (w *watcher) add(e Event, due time.Time) {
	if w.matches(e.key, e.Object) {
		w.enqueue(watch.Event{Type: e.Kind, Object: e.Object}, due)
	}
}

func (w *watcher) enqueue(event watch.Event, due time.Time) {
	w.mu.Lock()
	if n := len(w.queue); n > 0 && due.Before(w.queue[n-1].due) {
		due = w.queue[n-1].due
	}
	w.queue = append(w.queue, queued{event: event, due: due})
	w.mu.Unlock()
	w.nudge()
}

// end closes the watch, with an ERROR event if why is not nil.
func (w *watcher) end(why apierrors.APIStatus) {
	if why == nil {
		w.Stop()
		return
	}
	status := why.Status()
	status.TypeMeta = statusType
	w.mu.Lock()
	w.queue = []queued{{event: watch.Event{Type: watch.Error, Object: &status}, last: true}}
	w.mu.Unlock()
	w.nudge()
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.once.Do(func() { close(w.gone) }) }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context, limit time.Duration) {
	s := w.client.server
	defer func() {
		s.mu.Lock()
		s.watchers = slices.DeleteFunc(s.watchers, func(other *watcher) bool { return other == w })
		s.mu.Unlock()
		close(w.results)
	}()
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	for w.step(ctx, timeout) {
	}
}

// step waits for one event and reports whether the watch continues.
func (w *watcher) step(ctx context.Context, timeout <-chan time.Time) bool {
	head, wait, out := w.head()
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.gone:
		return false
	case <-timeout:
		return false
	case <-due:
	case <-w.wake:
	case out <- head.event:
		w.pop(head)
		return !head.last
	}
	return true
}

// head returns the next event. out is nil if there is none or it is not due yet. wait is the time until it is due.
func (w *watcher) head() (head queued, wait time.Duration, out chan<- watch.Event) {
	muted := w.client.muted()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return queued{}, 0, nil
	}
	head = w.queue[0]
	switch wait = time.Until(head.due); {
	case head.last:
		return head, 0, w.results
	case muted:
		return head, 0, nil
	case wait > 0:
		return head, wait, nil
	default:
		return head, 0, w.results
	}
}

// pop removes the sent event from the queue, unless end has replaced it.
func (w *watcher) pop(sent queued) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 && w.queue[0].event.Object == sent.event.Object {
		w.queue = w.queue[1:]
	}
}

// body is the body of the response to a watch request.
type body struct {
	*watcher
	rest []byte
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		e, open := <-b.results
		if !open {
			return 0, io.EOF
		}
		raw, err := json.Marshal(map[string]any{"type": e.Type, "object": e.Object})
		if err != nil {
			return 0, err
		}
		b.rest = append(raw, '\n')
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.Stop()
	return nil
}
