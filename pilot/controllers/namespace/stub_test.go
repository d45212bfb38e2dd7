package namespace

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// stub is an API server for the controller.
type stub struct{ *controllertest.Stub }

func newStub(t *testing.T, objects ...runtime.Object) *stub {
	return &stub{controllertest.NewStub(t, objects...)}
}

// stored returns the ConfigMap of a namespace, or nil.
func (s *stub) stored(namespace string) *corev1.ConfigMap {
	stored := &corev1.ConfigMap{}
	if !s.Get("configmaps", namespace, ConfigMapName, stored) {
		return nil
	}
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
	for _, w := range s.Writes() {
		if !w.At.Before(start) {
			times = append(times, w.At.Sub(start))
		}
	}
	return times
}

func (s *stub) count() int { return len(s.Writes()) }

func (s *stub) controller(config Config) *Controller {
	s.Helper()
	config.Logger = slog.New(slog.NewTextHandler(&s.Log, nil))
	c, err := New(s.Client, config)
	harness.Must(s.T, err)
	return c
}

// run runs a controller while the function runs.
func (s *stub) run(c *Controller, during func()) {
	s.Helper()
	controllertest.Run(s.T, c, during)
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
