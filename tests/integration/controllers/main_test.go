package controllers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// patience limits each wait. After an outage of the API server, client-go can back off for a minute.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{})
}

// identity returns a client with only these cluster-wide permissions.
func identity(t *testing.T, c *cluster.Cluster, namespace, pod string, rules ...rbacv1.PolicyRule) kube.Client {
	t.Helper()
	return cluster.ClientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: pod, ClusterRules: rules}))
}

// await waits until a function returns true.
var await = waits.Until

// stopAPIServer kills the API server and returns a function that restarts it. A test that uses it is not parallel.
func stopAPIServer(t *testing.T, c *cluster.Cluster) (bringBack func()) {
	t.Helper()
	if err := c.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	bringBack = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := c.APIServer().Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(bringBack)
	return bringBack
}

// during runs a function until end is called or the test ends, and waits for it.
func during(t *testing.T, run func(stop <-chan struct{})) (end func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		run(stop)
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("still running %v after its stop", patience)
		}
	})
	t.Cleanup(end)
	return end
}

// journal records log lines.
type journal struct {
	mu    *sync.Mutex
	lines *[]string
	with  []string
}

func newJournal() journal { return journal{mu: new(sync.Mutex), lines: new([]string)} }

func (journal) Enabled(context.Context, slog.Level) bool { return true }

func (j journal) Handle(_ context.Context, r slog.Record) error {
	words := append([]string{r.Level.String(), r.Message}, j.with...)
	r.Attrs(func(a slog.Attr) bool {
		words = append(words, a.String())
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	*j.lines = append(*j.lines, strings.Join(words, " "))
	return nil
}

func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	j.with = slices.Clone(j.with)
	for _, a := range attrs {
		j.with = append(j.with, a.String())
	}
	return j
}

func (j journal) WithGroup(string) slog.Handler { return j }

// matching returns the number of lines that contain all words.
func (j journal) matching(words ...string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range *j.lines {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// logger returns a logger for the journal, which is printed if the test fails.
func (j journal) logger(t *testing.T) *slog.Logger {
	t.Cleanup(func() {
		if t.Failed() {
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Logf("logged:\n%s", strings.Join(*j.lines, "\n"))
		}
	})
	return slog.New(j)
}

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
