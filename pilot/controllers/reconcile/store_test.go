package reconcile

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

var (
	maps1   = schema.GroupResource{Resource: "configmaps"}
	unknown = apierrors.NewNotFound(schema.GroupResource{}, "")
)

// store keeps ConfigMaps as an API server does, with one version for all. Its watches begin at what was
// listed, and may lag.
type store struct {
	mu      sync.Mutex
	version int
	objects map[string]*corev1.ConfigMap
	watches map[chan due]struct{}
	lag     time.Duration
	refuse  error // the answer to reads, if any
	asked   []string
}

type due struct {
	at    time.Time
	event watch.Event
}

func newStore(objects ...*corev1.ConfigMap) *store {
	s := &store{objects: map[string]*corev1.ConfigMap{}, watches: map[chan due]struct{}{}}
	for _, o := range objects {
		s.put(o)
	}
	return s
}

// configMap is one with this data, in namespace "n".
func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"data": data}}
}

func (s *store) put(o *corev1.ConfigMap) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = o.DeepCopy()
	kind, before := watch.Added, s.objects[o.Name]
	if before != nil {
		kind, o.UID = watch.Modified, before.UID
	}
	s.version++
	if o.UID == "" {
		o.UID = types.UID("uid-" + strconv.Itoa(s.version))
	}
	o.ResourceVersion = strconv.Itoa(s.version)
	s.objects[o.Name] = o
	s.tell(watch.Event{Type: kind, Object: o.DeepCopy()})
	return o.DeepCopy()
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name].DeepCopy()
	delete(s.objects, name)
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
	s.tell(watch.Event{Type: watch.Deleted, Object: o})
}

func (s *store) tell(event watch.Event) {
	for w := range s.watches {
		w <- due{time.Now().Add(s.lag), event}
	}
}

// update is a write that is guarded by the version.
func (s *store) update(o *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	have := s.objects[o.Name]
	s.mu.Unlock()
	switch {
	case have == nil:
		return nil, apierrors.NewNotFound(maps1, o.Name)
	case have.ResourceVersion != o.ResourceVersion:
		return nil, apierrors.NewConflict(maps1, o.Name, nil)
	}
	return s.put(o), nil
}

// answer has reads answered by an error from now on, and ends the watches; nil ends that.
func (s *store) answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
	for w := range s.watches {
		delete(s.watches, w)
		close(w)
	}
}

func (s *store) noted(verb string, o metav1.ListOptions) error {
	s.asked = append(s.asked, strings.TrimSpace(verb+" "+o.FieldSelector+" "+o.LabelSelector))
	return s.refuse
}

func (s *store) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.noted("list", o); err != nil {
		return nil, err
	}
	all := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		all.Items = append(all.Items, *s.objects[name].DeepCopy())
	}
	return all, nil
}

func (s *store) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.noted("watch", o); err != nil {
		return nil, err
	}
	events := make(chan due, 10_000)
	switch {
	case o.SendInitialEvents != nil:
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			events <- due{event: watch.Event{Type: watch.Added, Object: s.objects[name].DeepCopy()}}
		}
		events <- due{event: watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}}}
	case o.ResourceVersion != strconv.Itoa(s.version):
		return nil, apierrors.NewResourceExpired("list again")
	}
	s.watches[events] = struct{}{}
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{out: make(chan watch.Event), stop: cancel}
	go func() {
		defer close(w.out)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watches, events)
		}()
		for {
			select {
			case <-ctx.Done():
				return
			case next, more := <-events:
				if !more {
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(next.at)):
				}
				select {
				case <-ctx.Done():
					return
				case w.out <- next.event:
				}
			}
		}
	}()
	return w, nil
}

type watching struct {
	out  chan watch.Event
	stop func()
}

func (w *watching) ResultChan() <-chan watch.Event { return w.out }
func (w *watching) Stop()                          { w.stop() }

// reads are how often each was asked for since the last time.
func (s *store) reads() (asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.asked = s.asked, nil
	return asked
}

func client(t *testing.T) kube.Client {
	t.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// looks are the keys that a controller was asked to reconcile, with the time.
type looks struct {
	mu  sync.Mutex
	all []look
	// do is what reconciling comes to.
	do func(ctx context.Context, key string) error
}

type look struct {
	at  time.Time
	key string
}

func (l *looks) reconcile(ctx context.Context, key string) error {
	l.mu.Lock()
	l.all = append(l.all, look{time.Now(), key})
	do := l.do
	l.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(ctx, key)
}

// since are the keys since the last call, sorted.
func (l *looks) since() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		keys = append(keys, one.key)
	}
	l.all = nil
	slices.Sort(keys)
	return keys
}

// newController watches a store of ConfigMaps whose names are the keys. change changes the kind.
func newController(t *testing.T, l *looks, s *store, log *slog.Logger, change func(*Config[string], *Kind[string, *corev1.ConfigMap])) (*Controller[string], *Cache[string, *corev1.ConfigMap]) {
	t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config := Config[string]{Name: "tests controller", Reconcile: l.reconcile, Idle: "nothing is done", Logger: log}
	kind := Kind[string, *corev1.ConfigMap]{
		Name: "configmaps", From: From(s, Selector{}), Keys: func(o *corev1.ConfigMap) []string { return []string{o.Name} },
	}
	if change != nil {
		change(&config, &kind)
	}
	c, err := New(client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return c, Watch(c, kind)
}

// running runs a controller; end stops it and returns how long its end took.
func running(t *testing.T, c *Controller[string], beside ...func(context.Context)) (end func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx, beside...); err != nil {
			t.Error(err)
		}
	}()
	return func() time.Duration {
		began := time.Now()
		cancel()
		<-ended
		return time.Since(began)
	}
}
