package install

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// watchPause and watchLongest are the first and the longest pause between two watches.
	watchPause, watchLongest = time.Second, time.Minute
	// loadTime is how long API servers may take to load a change.
	loadTime = 1500 * time.Millisecond
)

// Watch calls changed after a policy or binding of any fence was created, changed or deleted, and again when API servers
// should have loaded the change. It returns when ctx ends. While a watch fails, changes are not reported, so the caller
// has to poll.
func Watch(ctx context.Context, client kubernetes.Interface, changed func(), log *slog.Logger) {
	events := make(chan struct{}, 1)
	const instead = "changes of the fence are detected by the next periodic test"
	trouble := apirequest.NewTrouble(log, map[string]string{"watch " + policyKind: instead, "watch " + bindingKind: instead})
	var all sync.WaitGroup
	defer all.Wait()
	for _, of := range bindingsFirst(client) {
		s := source{store: of, changed: func() {
			select {
			case events <- struct{}{}:
			default: // an event is pending
			}
		}}
		all.Go(func() { s.follow(ctx, trouble) })
	}
	later := time.NewTimer(0)
	later.Stop()
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			changed()
			later.Reset(loadTime)
		case <-later.C:
			changed()
		}
	}
}

// source is one kind of object that is watched.
type source struct {
	store
	changed func()
	known   map[string]string // version of the content, by name
}

// follow watches until ctx ends. It restarts the watch after each failure.
func (s *source) follow(ctx context.Context, trouble *apirequest.Trouble) {
	backoff := apirequest.Backoff(watchPause, watchLongest)
	for ctx.Err() == nil {
		w, err := s.open(ctx)
		if ctx.Err() == nil {
			trouble.Tried("watch "+s.kind, err)
		}
		if err == nil {
			s.learn(ctx, w)
			backoff = apirequest.Backoff(watchPause, watchLongest)
		}
		_ = apirequest.Pause(ctx, backoff.Step())
	}
}

// open lists the objects and starts a watch.
func (s *source) open(ctx context.Context) (watch.Interface, error) {
	list, err := s.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	version, err := meta.NewAccessor().ResourceVersion(list)
	if err != nil {
		return nil, err
	}
	now := map[string]string{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if m, ok := o.(metav1.Object); ok && ofAFence(m) {
			now[m.GetName()] = contentVersion(m)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.known != nil && !maps.Equal(s.known, now) {
		s.changed()
	}
	s.known = now
	return s.watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
}

// learn handles events until the watch ends.
func (s *source) learn(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return
			}
			s.take(event)
		}
	}
}

func (s *source) take(event watch.Event) {
	m, ok := event.Object.(metav1.Object)
	if !ok || event.Type == watch.Bookmark || !ofAFence(m) {
		return
	}
	name := m.GetName()
	if event.Type == watch.Deleted {
		delete(s.known, name)
		s.changed()
		return
	}
	if before, known := s.known[name]; !known || before != contentVersion(m) {
		s.known[name] = contentVersion(m)
		s.changed()
	}
}

// contentVersion changes with the content of an object, but not with its status.
func contentVersion(o metav1.Object) string { return fmt.Sprint(o.GetUID(), "/", o.GetGeneration()) }
