package locktest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// SetWatchDelay sets the latency of watch events. Their order does not change.
func (c *Client) SetWatchDelay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = d
}

// MuteWatches keeps the watches of the client open but silent, as a stalled connection does. false delivers the
// pending events.
func (c *Client) MuteWatches(mute bool) {
	c.mu.Lock()
	c.mute = mute
	c.mu.Unlock()
	for w := range c.watches() {
		w.nudge()
	}
}

// DropWatches ends the watches of the client without an error. Pending events are lost.
func (c *Client) DropWatches() { c.EndWatches(nil) }

// ExpireWatches ends the watches of the client with 410 Gone.
func (c *Client) ExpireWatches() {
	c.EndWatches(apierrors.NewResourceExpired("too old resource version"))
}

// EndWatches ends the watches of the client with an ERROR event. If why is nil, it is DropWatches.
func (c *Client) EndWatches(why apierrors.APIStatus) {
	for w := range c.watches() {
		w.end(why)
	}
}

// Watching returns the number of open watches of the client.
func (c *Client) Watching() int { return len(c.watches()) }

func (c *Client) watches() map[*watcher]bool {
	all := c.store.watching()
	for w := range all {
		if w.client != c {
			delete(all, w)
		}
	}
	return all
}

func (c *Client) muted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mute
}

// due returns the time at which an event of now arrives at this client.
func (c *Client) due() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.delay)
}

// watcher is one open watch. Its goroutine sends events when they are due. The store only appends to the queue.
type watcher struct {
	client  *Client
	others  bool // the reader also asked for other objects
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

// watch starts a watch as the API server does. Without a version it starts with the current state. With a version
// it starts with all later changes.
func (s *Store) watch(ctx context.Context, c *Client, opts metav1.ListOptions) (*watcher, error) {
	selector, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &watcher{
		client:  c,
		results: make(chan watch.Event), wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	selects := func(name string) bool {
		return selector.Matches(fields.Set{"metadata.name": name, "metadata.namespace": Namespace})
	}
	matches := selects(Name)
	w.others = selects(otherName)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.catchUp(w, opts.ResourceVersion, matches); err != nil {
		return nil, err
	}
	if matches {
		s.watchers[w] = true
	}
	limit := time.Duration(0)
	if opts.TimeoutSeconds != nil {
		limit = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	go w.run(ctx, s, limit)
	return w, nil
}

// catchUp queues earlier changes. The caller holds mu.
func (s *Store) catchUp(w *watcher, from string, matches bool) error {
	if from == "" || from == "0" {
		if matches && s.object != nil {
			w.add(Event{kind: watch.Added, object: s.object})
		}
		return nil
	}
	after, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest("invalid resourceVersion: " + from)
	}
	if after < s.floor {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, s.floor))
	}
	for _, e := range s.history {
		if matches && e.Version > after {
			w.add(e)
		}
	}
	return nil
}

func (w *watcher) add(e Event) {
	due := w.client.due()
	w.mu.Lock()
	if n := len(w.queue); n > 0 && due.Before(w.queue[n-1].due) {
		due = w.queue[n-1].due
	}
	w.queue = append(w.queue, queued{event: watch.Event{Type: e.kind, Object: clone(e.object)}, due: due})
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

func (w *watcher) run(ctx context.Context, s *Store, limit time.Duration) {
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
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
