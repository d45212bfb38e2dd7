package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	election = "istio-leader"
	// work is the ConfigMap that the leader writes.
	work = "work"
	// soon bounds every wait; what takes this long has failed.
	soon = time.Minute
)

// stage is a namespace for elections.
type stage struct {
	t         *testing.T
	cluster   *cluster.Cluster
	admin     kubernetes.Interface
	namespace string
	lock      leaderelection.LockType
}

func newStage(t *testing.T, lock leaderelection.LockType) *stage {
	t.Helper()
	c := cluster.Shared(t)
	return &stage{t: t, cluster: c, admin: c.Client(t).Kube(), namespace: c.Namespace(t), lock: lock}
}

// wire is below the gate and sees what gets out of it.
type wire struct {
	mu  sync.Mutex
	out int // writes of the work
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return &tap{wire: w, next: next}
}

type tap struct {
	wire *wire
	next http.RoundTripper
}

func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps/"+work) && req.Context().Err() == nil {
		t.wire.mu.Lock()
		t.wire.out++
		t.wire.mu.Unlock()
	}
	return t.next.RoundTrip(req)
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out
}

// candidate is an elector whose run function continues to write after its term.
type candidate struct {
	*leaderelection.LeaderElection
	stage *stage
	name  string
	wire  *wire
	relay *relay.Relay
	quit  func()

	told   chan struct{} // closed when the first term's context is cancelled
	mayEnd chan struct{} // closed by the test: it may return
	once   sync.Once
}

func (s *stage) enter(name, revision string, watcher revisions.DefaultWatcher) *candidate {
	s.t.Helper()
	c := &candidate{stage: s, name: name, wire: &wire{}, told: make(chan struct{}), mayEnd: make(chan struct{})}
	config := s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: name, ServiceAccount: "pilot",
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, Verbs: []string{"*"},
		}},
	})
	at, err := url.Parse(config.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	if c.relay, err = relay.Listen(s.t.Context(), at.Host); err != nil {
		s.t.Fatal(err)
	}
	config.Host, config.ServerName = "https://"+c.relay.Addr(), at.Hostname()
	config.Wrap(c.wire.wrap)
	made, err := kube.NewClient(config, kube.WithOwnConnections(), kube.WithRateLimit(-1, 0))
	if err != nil {
		s.t.Fatal(err)
	}
	c.LeaderElection, err = leaderelection.New(made, leaderelection.Config{
		Namespace: s.namespace, Identity: name, ElectionID: election, Revision: revision, Lock: s.lock, DefaultWatcher: watcher,
		LeaseDuration: 8 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	c.AddRunContext(c.work)
	c.run(made)
	return c
}

func (c *candidate) run(made kube.Client) {
	t := c.stage.t
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.RunContext(ctx) }()
	c.quit = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		c.relay.Present(relay.Fate{})
		c.relay.Coming(relay.Fate{})
		c.once.Do(func() { close(c.mayEnd) })
		c.quit()
		kube.CloseIdleConnections(made)
		kube.CloseIdleConnections(c.Client())
		if err := c.relay.Close(); err != nil {
			t.Error(err)
		}
	})
}

// write is one write of the work. Its context is of no term: a goroutine that was left
// behind need not have that of its function.
func (c *candidate) write(ctx context.Context) error {
	maps := c.Client().Kube().CoreV1().ConfigMaps(c.stage.namespace)
	_, err := maps.Patch(ctx, work, types.MergePatchType, fmt.Appendf(nil, `{"data":{"by":%q}}`, c.name), metav1.PatchOptions{})
	return err
}

// work writes until its context ends. The first time, it does not return before the test
// allows it.
func (c *candidate) work(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = c.write(ctx)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	select {
	case <-c.told:
	default:
		close(c.told)
		<-c.mayEnd
	}
	return nil
}

func (c *candidate) mayReturn() { c.once.Do(func() { close(c.mayEnd) }) }

// leads waits until it leads and has written.
func (c *candidate) leads() {
	c.stage.t.Helper()
	eventually(c.stage.t, c.name+" leads and works", func() bool { return c.IsLeader() && c.wire.count() > 0 })
}

// isTold waits until the context of its function ends.
func (c *candidate) isTold() {
	c.stage.t.Helper()
	select {
	case <-c.told:
	case <-time.After(soon):
		c.stage.t.Fatalf("%s was not told within %v", c.name, soon)
	}
}

// isShut tries to write, and fails if a write gets out, or if one is refused otherwise than
// by the gate.
func (c *candidate) isShut() {
	c.stage.t.Helper()
	ctx, cancel := context.WithTimeout(c.stage.t.Context(), soon)
	defer cancel()
	before := c.wire.count()
	var refused *fence.NotLeaderError
	for range 20 {
		if err := c.write(ctx); !errors.As(err, &refused) {
			c.stage.t.Errorf("a write of %s after it had lost its term: %v", c.name, err)
		}
	}
	if n := c.wire.count() - before; n != 0 {
		c.stage.t.Errorf("%d of 20 writes of %s got out after it had lost its term", n, c.name)
	}
}

// prepare makes the object that is written, so that the wire sees nothing but patches.
func (s *stage) prepare() {
	s.t.Helper()
	if _, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: work}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// eventually waits until something holds.
var eventually = waits.Until
