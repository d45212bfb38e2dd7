package elections

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// election is the one that tests are about.
const election = leaderelection.NamespaceController

// soon bounds every wait of a test; what takes this long has failed.
const soon = 30 * time.Second

// rights are the least that a candidate needs, for both kinds of lock.
func rights() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for group, resource := range map[string]string{"": "configmaps", "coordination.k8s.io": "leases"} {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{
				APIGroups: []string{group}, Resources: []string{resource},
				ResourceNames: []string{election, election + "-stable", election + "-canary"}, Verbs: []string{"get", "update", "watch"},
			})
	}
	return rules
}

// webhookRights let a candidate follow the default revision.
func webhookRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{"istio-revision-tag-default"}, Verbs: []string{"get", "list", "watch"},
	}}
}

// wire is a replica's connection to the API server: it counts requests, and can be cut.
type wire struct {
	mu       sync.Mutex
	cut      bool
	requests map[string]int
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return &end{wire: w, next: next}
}

type end struct {
	wire *wire
	next http.RoundTripper
}

func (e *end) RoundTrip(req *http.Request) (*http.Response, error) {
	e.wire.mu.Lock()
	e.wire.requests[req.Method]++
	cut := e.wire.cut
	e.wire.mu.Unlock()
	if cut {
		return nil, errors.New("the test has cut this replica off")
	}
	return e.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport below.
func (e *end) WrappedRoundTripper() http.RoundTripper { return e.next }

func (w *wire) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.requests {
		n += k
	}
	return n
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// span is the life of a run function. The zero end means that it goes on.
type span struct{ from, to time.Time }

// replica is one process's part, with a run function whose life it records.
type replica struct {
	*leaderelection.LeaderElection
	name   string
	client kube.Client
	wire   *wire
	log    *syncBuffer

	mu     sync.Mutex
	spans  []span
	cancel context.CancelFunc
	done   chan error
}

// stage is a namespace in which replicas elect.
type stage struct {
	t         testing.TB
	cluster   *cluster.Cluster
	namespace string
	lock      leaderelection.LockType
	configs   map[string]*rest.Config
}

func newStage(t testing.TB, lock leaderelection.LockType) *stage {
	t.Helper()
	c := cluster.Shared(t)
	return &stage{t: t, cluster: c, namespace: c.Namespace(t), lock: lock, configs: map[string]*rest.Config{}}
}

// identity is the configuration of a replica with a token of its own Pod. A process
// that comes back in the same Pod has the same.
func (s *stage) identity(name string) *rest.Config {
	s.t.Helper()
	if s.configs[name] == nil {
		s.configs[name] = s.cluster.Identity(s.t, cluster.IdentityOptions{
			Namespace: s.namespace, PodName: name, ServiceAccount: "pilot", Rules: rights(), ClusterRules: webhookRights(),
		})
	}
	return rest.CopyConfig(s.configs[name])
}

// replica makes one that does not run yet.
func (s *stage) replica(name, revision string, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := &replica{name: name, wire: &wire{requests: map[string]int{}}, log: &syncBuffer{}, done: make(chan error, 1)}
	config := s.identity(name)
	config.Wrap(r.wire.wrap)
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		s.t.Fatal(err)
	}
	r.client = client
	s.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	cfg := leaderelection.Config{
		Namespace: s.namespace, Identity: name, ElectionID: election, Revision: revision, Lock: s.lock,
		LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second,
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(r.log), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.LeaderElection, err = leaderelection.New(client, cfg); err != nil {
		s.t.Fatal(err)
	}
	r.AddRunContext(r.work)
	return r
}

// enter makes a replica and runs it until the test or quit ends it.
func (s *stage) enter(name, revision string, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := s.replica(name, revision, change...)
	r.start(s.t)
	return r
}

func (r *replica) start(t testing.TB) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { r.done <- r.RunContext(ctx) }()
	t.Cleanup(func() {
		r.wire.setCut(false)
		if err := r.quit(); err != nil {
			t.Errorf("replica %s: %v", r.name, err)
		}
		if t.Failed() {
			t.Logf("replica %s:\n%s", r.name, r.log.String())
		}
	})
}

// quit stops the replica and returns what RunContext did.
func (r *replica) quit() error {
	r.cancel()
	err := <-r.done
	r.done <- err
	return err
}

func (r *replica) work(ctx context.Context) error {
	r.mu.Lock()
	r.spans = append(r.spans, span{from: time.Now()})
	i := len(r.spans) - 1
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans[i].to = time.Now()
	return nil
}

func (r *replica) lives() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]span{}, r.spans...)
}

func (r *replica) live() bool {
	spans := r.lives()
	return len(spans) > 0 && spans[len(spans)-1].to.IsZero()
}

func (r *replica) last() span {
	spans := r.lives()
	if len(spans) == 0 {
		return span{}
	}
	return spans[len(spans)-1]
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// noOverlap fails the test when two of the replicas' run functions ran at once.
func noOverlap(t testing.TB, replicas ...*replica) {
	t.Helper()
	now := time.Now()
	for i, a := range replicas {
		for _, b := range replicas[i+1:] {
			for _, x := range a.lives() {
				for _, y := range b.lives() {
					if d := overlap(x, y, now); d > 0 {
						t.Errorf("%s and %s ran at once for %v", a.name, b.name, d)
					}
				}
			}
		}
	}
}

func overlap(x, y span, now time.Time) time.Duration {
	end := func(s span) time.Time {
		if s.to.IsZero() {
			return now
		}
		return s.to
	}
	from, to := x.from, end(x)
	if y.from.After(from) {
		from = y.from
	}
	if end(y).Before(to) {
		to = end(y)
	}
	return to.Sub(from)
}

// leader is the one replica that runs.
func leader(t testing.TB, replicas ...*replica) *replica {
	t.Helper()
	var found *replica
	eventually(t, "one replica leads", func() bool {
		found = nil
		for _, r := range replicas {
			if r.live() {
				found = r
			}
		}
		return found != nil
	})
	return found
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
