package elections

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// workMap is the ConfigMap that a worker writes, and pace the interval of its writes.
const (
	workMap = "work"
	pace    = 100 * time.Millisecond
)

// worker is a candidate that reaches the API server through a relay. While it leads, it writes a ConfigMap. Its transport is below
// the gate, and only its run function sends PATCH requests.
type worker struct {
	*candidate
	relay   *relay.Relay
	written atomic.Int64
	longest atomic.Int64 // the longest write in nanoseconds
}

// worker returns a worker that does not run yet.
func (x *fixture) worker(name string, options ...func(*leaderelection.Config)) *worker {
	x.Helper()
	config := x.config(name)
	through := relay.For(x, config)
	w := &worker{relay: through, candidate: x.candidateAt(name, "stable", config, options...)}
	w.AddRunContext(w.writes)
	_, err := x.cluster.Client(x).Kube().CoreV1().ConfigMaps(x.namespace).Create(x.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: workMap}}, metav1.CreateOptions{})
	harness.Must(x, err)
	return w
}

// lead starts the worker, and waits until it leads and writes.
func (w *worker) lead(t *testing.T) *worker {
	t.Helper()
	w.start(t)
	t.Cleanup(func() { // before the candidate is stopped
		w.relay.All(relay.Fate{})
		w.relay.Reset()
	})
	harness.Until(t, w.name+" leads and writes", func() bool { return w.IsLeader() && w.written.Load() > 2 })
	return w
}

// renewed returns the number of renewals that succeeded.
func (w *worker) renewed() int { return w.sent.Count("PUT ", " 200 OK") }

// write sends a write through the gate.
func (w *worker) write(ctx context.Context) error {
	began := time.Now()
	text := fmt.Appendf(nil, `{"data":{"by":%q,"n":"%d"}}`, w.name, w.written.Load())
	_, err := w.Client().Kube().CoreV1().ConfigMaps(w.namespace).Patch(ctx, workMap, types.MergePatchType, text, metav1.PatchOptions{})
	w.longest.Store(max(w.longest.Load(), int64(time.Since(began))))
	if err == nil {
		w.written.Add(1)
	}
	return err
}

// writes writes without a deadline of its own until ctx ends.
func (w *worker) writes(ctx context.Context) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = w.write(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// continues waits for renewals and writes, and fails if the worker needed another term.
func (w *worker) continues(t *testing.T, renewals int) {
	t.Helper()
	terms := len(w.Spans())
	token := w.Status().Term.Token
	renewed := w.renewed()
	harness.Until(t, w.name+" renews", func() bool { return w.renewed() >= renewed+renewals })
	written := w.written.Load()
	harness.Until(t, w.name+" writes", func() bool { return w.written.Load() >= written+5 })
	if now := len(w.Spans()); now != terms || w.Status().Term.Token != token {
		t.Errorf("%s had %d terms and token %d, now %d and %d", w.name, terms, token, now, w.Status().Term.Token)
	}
}
