package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// probed is a worker whose process responds with the given codes. It records the readiness before each response.
type probed struct {
	*worker
	address string

	mu    sync.Mutex
	codes []int
	ready []bool
	// over is called with the last code.
	over func()
}

func newProbed(t *testing.T, change func(*corev1.Probe, *corev1.Container), over func(), codes ...int) *probed {
	t.Helper()
	p := &probed{codes: codes, over: over}
	server := httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	harness.Must(t, err)
	p.address = host
	n := &Node{options: Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}}
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 60, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/asked", Port: intstr.Parse(port)},
	}}
	container := corev1.Container{Name: "replica"}
	change(probe, &container)
	p.worker = n.newWorker(t.Context(), &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}})
	return p
}

func (p *probed) answer(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.URL.Path != "/asked" || len(p.ready) == len(p.codes) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	p.ready = append(p.ready, p.snapshot().Ready)
	w.WriteHeader(p.codes[len(p.ready)-1])
	if len(p.ready) == len(p.codes) {
		p.over()
	}
}

func TestReadiness_FailureThreshold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newProbed(t, func(probe *corev1.Probe, c *corev1.Container) {
		probe.FailureThreshold = 3
		c.ReadinessProbe = probe
	}, cancel, 503, 200, 503, 503, 302, 503, 503, 503, 200, 200)
	p.probe(ctx, p.address)
	want := []bool{false, false, true, true, true, true, true, true, false, true}
	if !slices.Equal(p.ready, want) {
		t.Errorf("readiness before each response: %v, want %v", p.ready, want)
	}
}

func TestLiveness_FailureThreshold(t *testing.T) {
	t.Parallel()
	p := newProbed(t, func(probe *corev1.Probe, c *corev1.Container) {
		probe.FailureThreshold, probe.InitialDelaySeconds = 2, 1
		c.LivenessProbe = probe
	}, func() {}, 503, 200, 404, 200, 503, 500)
	began := time.Now()
	err := p.watchLife(t.Context(), p.address)
	if err == nil || !strings.Contains(err.Error(), "2 times in a row") || !strings.Contains(err.Error(), "500 Internal") || len(p.ready) != len(p.codes) {
		t.Errorf("after %d answers: %v", len(p.ready), err)
	}
	// The initial delay, and one second before each other probe.
	if took := time.Since(began); took < 6*time.Second {
		t.Errorf("probed %d times within %v", len(p.codes), took)
	}
}
