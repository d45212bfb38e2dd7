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
	configMaps = schema.GroupResource{Resource: "configmaps"}
	notServed  = apierrors.NewNotFound(schema.GroupResource{}, "")
)

// store stores ConfigMaps with versions, as an API server does. Its watch events can be delayed.
type store struct {
	mu       sync.Mutex
	version  int
	objects  map[string]*corev1.ConfigMap
	watches  []*watch.RaceFreeFakeWatcher
	lag      time.Duration
	readErr  error // if set, the result of each read
	requests []string
}

func newStore(objects ...*corev1.ConfigMap) *store {
	s := &store{objects: map[string]*corev1.ConfigMap{}}
	for _, o := range objects {
		s.put(o)
	}
	return s
}

func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"data": data}}
}

func (s *store) put(o *corev1.ConfigMap) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = o.DeepCopy()
	kind := watch.Added
	s.version++
	o.UID = types.UID("uid-" + strconv.Itoa(s.version))
	if before := s.objects[o.Name]; before != nil {
		kind = watch.Modified
		o.UID = before.UID
	}
	o.ResourceVersion = strconv.Itoa(s.version)
	s.objects[o.Name] = o
	s.send(kind, o)
	return o.DeepCopy()
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name].DeepCopy()
	delete(s.objects, name)
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
	s.send(watch.Deleted, o)
}

func (s *store) send(kind watch.EventType, o *corev1.ConfigMap) {
	for _, w := range s.watches {
		if object := o.DeepCopy(); s.lag == 0 {
			w.Action(kind, object)
		} else {
			time.AfterFunc(s.lag, func() { w.Action(kind, object) })
		}
	}
}

// update writes an object if its version is current.
func (s *store) update(o *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	have := s.objects[o.Name]
	s.mu.Unlock()
	switch {
	case have == nil:
		return nil, apierrors.NewNotFound(configMaps, o.Name)
	case have.ResourceVersion != o.ResourceVersion:
		return nil, apierrors.NewConflict(configMaps, o.Name, nil)
	}
	return s.put(o), nil
}

// failReads ends all watches and makes later reads return err, unless it is nil.
func (s *store) failReads(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readErr = err
	for _, w := range s.watches {
		w.Stop()
	}
}

func (s *store) request(verb string, o metav1.ListOptions) error {
	s.requests = append(s.requests, strings.TrimSpace(verb+" "+o.FieldSelector+" "+o.LabelSelector))
	return s.readErr
}

func (s *store) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("list", o); err != nil {
		return nil, err
	}
	all := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		all.Items = append(all.Items, *s.objects[name].DeepCopy())
	}
	return all, nil
}

func (s *store) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("watch", o); err != nil {
		return nil, err
	}
	w := watch.NewRaceFreeFake()
	switch {
	case o.SendInitialEvents != nil:
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			w.Add(s.objects[name].DeepCopy())
		}
		w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	case o.ResourceVersion != strconv.Itoa(s.version):
		return nil, apierrors.NewResourceExpired("list again")
	}
	s.watches = append(s.watches, w)
	return w, nil
}

// reads returns the requests since the last call.
func (s *store) reads() (requests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests = s.requests
	s.requests = nil
	return requests
}

func client(t *testing.T) kube.Client {
	t.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recorder records the reconciled keys.
type recorder struct {
	mu   sync.Mutex
	keys []string
	// result is the Reconcile function, or nil.
	result func(ctx context.Context, key string) error
}

func (r *recorder) reconcile(ctx context.Context, key string) error {
	r.mu.Lock()
	r.keys = append(r.keys, key)
	result := r.result
	r.mu.Unlock()
	if result == nil {
		return nil
	}
	return result(ctx, key)
}

// since returns the keys since the last call, sorted.
func (r *recorder) since() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys = r.keys
	r.keys = nil
	slices.Sort(keys)
	return keys
}

type change = func(*Config[string], *Kind[string, *corev1.ConfigMap])

// newController returns a controller for a store of ConfigMaps. The keys are their names.
func newController(t *testing.T, r *recorder, s *store, log *slog.Logger, changes ...change) (*Controller[string], *Cache[string, *corev1.ConfigMap]) {
	t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config := Config[string]{Name: "tests controller", Reconcile: r.reconcile, Idle: "nothing is written", Logger: log}
	kind := Kind[string, *corev1.ConfigMap]{
		Name: "configmaps", From: From(s, Selector{}), Keys: func(o *corev1.ConfigMap) []string { return []string{o.Name} },
	}
	for _, change := range changes {
		change(&config, &kind)
	}
	c, err := New(client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return c, Watch(c, kind)
}

// start runs a controller. The returned function stops it and returns the duration of the stop.
func start(t *testing.T, c *Controller[string], background ...func(context.Context)) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx, background...); err != nil {
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
