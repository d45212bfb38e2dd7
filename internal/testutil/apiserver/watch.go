package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is the body of an open watch. A read waits for the next event.
type stream struct {
	s        *Server
	ctx      context.Context // of the request
	end      context.CancelFunc
	matches  func(key string, o object) bool
	next     int    // index in the history
	buffered []byte // events that were not read yet
}

// SetWatchDelay sets the latency of watch events.
func (s *Server) SetWatchDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// EndWatches ends all watches without an error.
func (s *Server) EndWatches() {
	for _, w := range s.watching() {
		w.end()
	}
}

// Watching returns the number of open watches.
func (s *Server) Watching() int { return len(s.watching()) }

func (s *Server) watching() (open []*stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = slices.DeleteFunc(s.watches, func(w *stream) bool { return w.ctx.Err() != nil })
	return slices.Clone(s.watches)
}

// watch starts a watch. Without a version it begins with the current objects, and with a bookmark if the client wants to know
// where they end. With a version it begins with all later changes.
func (s *Server) watch(ctx context.Context, r Request) (any, error) {
	matches, err := selector(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream{s: s, matches: matches}
	w.ctx, w.end = context.WithCancel(ctx)
	s.watches = append(s.watches, w)
	query := r.URL.Query()
	from := query.Get("resourceVersion")
	initial := query.Get("sendInitialEvents") == "true"
	if initial || from == "" || from == "0" {
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if o := s.objects[key]; matches(key, o) {
				w.buffer(watch.Added, o)
			}
		}
		w.next = len(s.history)
		if initial {
			bookmark := object(&unstructured.Unstructured{Object: map[string]any{"apiVersion": r.Version.String(), "kind": kindOf(r)}})
			bookmark.SetResourceVersion(strconv.Itoa(s.version))
			bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			w.buffer(watch.Bookmark, bookmark)
		}
		return w, nil
	}
	after, err := strconv.Atoi(from)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resourceVersion: " + from)
	}
	for w.next < len(s.history) && version(s.history[w.next].object) <= after {
		w.next++
	}
	return w, nil
}

func version(o object) int {
	n, _ := strconv.Atoi(o.GetResourceVersion())
	return n
}

func (w *stream) buffer(kind watch.EventType, o object) {
	raw, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	w.buffered = append(append(w.buffered, raw...), '\n')
}

// pull buffers the events that have arrived. It returns channels that close or receive when there may be more.
func (w *stream) pull() (changed <-chan struct{}, due <-chan time.Time) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for ; w.next < len(w.s.history); w.next++ {
		e := w.s.history[w.next]
		if wait := time.Until(e.at.Add(w.s.delay)); w.s.delay > 0 && wait > 0 {
			return w.s.changed, time.After(wait)
		}
		if w.matches(e.key, e.object) {
			w.buffer(e.kind, e.object)
		}
	}
	return w.s.changed, nil
}

// Read implements io.Reader.
func (w *stream) Read(p []byte) (int, error) {
	for len(w.buffered) == 0 {
		changed, due := w.pull()
		if len(w.buffered) > 0 {
			break
		}
		select {
		case <-changed:
		case <-due:
		case <-w.ctx.Done():
			return 0, io.EOF
		}
	}
	n := copy(p, w.buffered)
	w.buffered = w.buffered[n:]
	return n, nil
}

// Close implements io.Closer.
func (w *stream) Close() error {
	w.end()
	return nil
}
