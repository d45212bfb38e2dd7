package namespace

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/fakes"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

var (
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// stub is a client without an API server. It records the time of each attempt to write.
type stub struct {
	*testing.T
	fakes.Client
	log harness.Log

	mu      sync.Mutex
	version int
	answer  func() error // result of the next write; if nil, or if it returns nil, the write succeeds
	writes  []time.Time
}

func newStub(t *testing.T, objects ...runtime.Object) *stub {
	s := &stub{T: t, Client: fakes.Client{Clientset: fake.NewClientset()}, version: 100}
	for _, o := range objects {
		s.put(o)
	}
	for _, verb := range []string{"create", "patch"} {
		s.Clientset.PrependReactor(verb, "configmaps", s.write)
	}
	return s
}

// write gives each write a new resourceVersion, which the fake clientset does not do.
func (s *stub) write(action k8stesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	s.writes = append(s.writes, time.Now())
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if err := answer(); err != nil {
			return true, nil, err
		}
	}
	switch action := action.(type) {
	case k8stesting.PatchActionImpl:
		var patch map[string]any
		if err := json.Unmarshal(action.Patch, &patch); err != nil {
			return true, nil, err
		}
		patch["metadata"] = map[string]any{"resourceVersion": s.nextVersion()}
		action.Patch, _ = json.Marshal(patch)
		return k8stesting.ObjectReaction(s.Clientset.Tracker())(action)
	case k8stesting.CreateActionImpl:
		action.GetObject().(metav1.Object).SetResourceVersion(s.nextVersion())
	}
	return false, nil, nil
}

func (s *stub) nextVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return strconv.Itoa(s.version)
}

// put creates or updates an object as another client.
func (s *stub) put(o runtime.Object) {
	s.Helper()
	object := o.(metav1.Object)
	object.SetResourceVersion(s.nextVersion())
	if _, ok := o.(*corev1.Namespace); ok && object.GetUID() == "" {
		object.SetUID("first")
	}
	s.Put(s.T, o)
}

func (s *stub) remove(resource schema.GroupVersionResource, namespace, name string) {
	s.Helper()
	if err := s.Clientset.Tracker().Delete(resource, namespace, name); err != nil {
		s.Fatal(err)
	}
}

// stored returns the ConfigMap of a namespace, or nil.
func (s *stub) stored(namespace string) *corev1.ConfigMap {
	o, _ := s.Clientset.Tracker().Get(configMapResource, namespace, ConfigMapName)
	stored, _ := o.(*corev1.ConfigMap)
	return stored
}

func (s *stub) bundle(namespace string) string {
	if m := s.stored(namespace); m != nil {
		return m.Data[BundleKey]
	}
	return ""
}

// since returns the times of the writes so far, relative to a start.
func (s *stub) since(start time.Time) (times []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.writes {
		if !at.Before(start) {
			times = append(times, at.Sub(start))
		}
	}
	return times
}

func (s *stub) count() int { return len(s.since(time.Time{})) }

func (s *stub) controller(config Config) *Controller {
	s.Helper()
	config.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	c, err := New(s, config)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// run runs a controller while the function runs.
func (s *stub) run(c *Controller, during func()) {
	s.Helper()
	fakes.Run(s.T, c, during)
}

func space(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func terminating(name string) *corev1.Namespace {
	n := space(name)
	n.Status.Phase = corev1.NamespaceTerminating
	return n
}

// bundleMap returns a ConfigMap with this value, or without the key if the value is empty.
func bundleMap(value string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: "a"}, Data: map[string]string{}}
	if value != "" {
		m.Data[BundleKey] = value
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
}

// bundleFile writes a new bundle, or an empty file.
func bundleFile(t *testing.T, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, content)
	return file
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
