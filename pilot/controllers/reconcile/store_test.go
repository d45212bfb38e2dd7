package reconcile

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	notServed  = apierrors.NewNotFound(schema.GroupResource{}, "")
)

// store is an API server with ConfigMaps.
type store struct {
	*apiserver.Server
	corev1client.ConfigMapInterface
}

func newStore(objects ...*corev1.ConfigMap) *store {
	s := &store{Server: apiserver.New()}
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		panic(err)
	}
	s.ConfigMapInterface = client.CoreV1().ConfigMaps("n")
	for _, o := range objects {
		s.put(o)
	}
	return s
}

func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"data": data}}
}

func (s *store) put(o *corev1.ConfigMap) *corev1.ConfigMap {
	s.Put(o)
	stored := &corev1.ConfigMap{}
	s.Server.Get("configmaps", "n", o.Name, stored)
	return stored
}

func (s *store) remove(name string) { s.Server.Delete("configmaps", "n", name) }

// update writes an object if its version is current.
func (s *store) update(o *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return s.Update(context.Background(), o, metav1.UpdateOptions{})
}

// failReads ends all watches and makes later reads return err, unless it is nil.
func (s *store) failReads(err error) {
	s.On(func(r apiserver.Request) apiserver.Fault {
		if r.Verb == "list" || r.Verb == "watch" {
			return apiserver.Fault{Err: err}
		}
		return apiserver.Fault{}
	})
	s.EndWatches()
}

// reads returns the requests since the last call.
func (s *store) reads() (requests []string) {
	for _, r := range s.Requests() {
		query := r.URL.Query()
		requests = append(requests, strings.TrimSpace(r.Verb+" "+query.Get("fieldSelector")+" "+query.Get("labelSelector")))
	}
	return requests
}

func client(t *testing.T) kube.Client {
	t.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
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
	harness.Must(t, err)
	return c, Watch(c, kind)
}

// start runs a controller. The returned function stops it and returns the duration of the stop.
func start(t *testing.T, c *Controller[string]) (stop func() time.Duration) {
	t.Helper()
	end := harness.Background(t, c.Run)
	return func() time.Duration {
		began := time.Now()
		end()
		return time.Since(began)
	}
}
