package migration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// election is the ID of the election.
const election = leaderelection.GatewayStatusController

// The durations are short, so that a migration takes a minute.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// soon limits each wait.
const soon = time.Minute

// rights are the permissions that a candidate needs for both lock types.
func rights() (rules []rbacv1.PolicyRule) {
	for group, resource := range map[string]string{"": "configmaps", coordinationv1.GroupName: "leases"} {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{
				APIGroups: []string{group}, Resources: []string{resource},
				ResourceNames: []string{election, election + "-stable", election + "-canary"}, Verbs: []string{"get", "update", "watch"},
			})
	}
	return rules
}

// stage is a namespace with an election.
type stage struct {
	t               *testing.T
	cluster         *cluster.Cluster
	namespace       string
	admin           kubernetes.Interface
	defaultRevision *defaults.Watcher
	all             []*replica
	began           time.Time
}

func newStage(t *testing.T) *stage {
	t.Helper()
	c := cluster.Shared(t)
	admin := c.Client(t).Kube()
	return &stage{t: t, cluster: c, namespace: c.Namespace(t), admin: admin, defaultRevision: defaults.New("stable"), began: time.Now()}
}

// replica is a candidate that records when its run function runs.
type replica struct {
	*leaderelection.LeaderElection
	lives.Recorder
	lives.Process
	name string
	log  *logs.Buffer

	mu     sync.Mutex
	cutOff bool
	stuck  map[string]chan struct{} // blocked writes, by resource
	onStop func()                   // what the run function does before it returns. Optional.
}

// Lives implements lives.Candidate.
func (r *replica) Lives() (string, lives.Spans) { return r.name, r.Spans() }

// wire is the connection of a replica, which can be cut.
type wire struct {
	of   *replica
	next http.RoundTripper
}

var errCut = errors.New("the test has cut this replica off")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.of.isCut() {
		return nil, errCut
	}
	if free := w.of.waitsFor(req); free != nil {
		select {
		case <-free:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		if w.of.isCut() {
			return nil, errCut
		}
	}
	return w.next.RoundTrip(req)
}

// waitsFor returns the channel for which a request waits, or nil.
func (r *replica) waitsFor(req *http.Request) <-chan struct{} {
	if req.Method == http.MethodGet || req.URL.Query().Get("dryRun") != "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for resource, free := range r.stuck {
		if strings.Contains(req.URL.Path, "/"+resource) {
			return free
		}
	}
	return nil
}

// hold blocks writes to a resource until the returned function is called.
func (r *replica) hold(resource string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := make(chan struct{})
	r.stuck[resource] = free
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.stuck, resource)
		close(free)
	}
}

// WrappedRoundTripper returns the wrapped transport, for client-go.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.next }

func (r *replica) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cutOff
}

func (r *replica) cut(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cutOff = is
}

// enter starts a replica.
func (s *stage) enter(name, revision string, lock leaderelection.LockType, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := s.prepare(name, revision, lock, "pilot", rights(), change...)
	r.start(s.t)
	return r
}

// prepare returns a replica that does not run yet.
func (s *stage) prepare(name, revision string, lock leaderelection.LockType, account string, rules []rbacv1.PolicyRule, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := &replica{name: name, log: &logs.Buffer{}, stuck: map[string]chan struct{}{}}
	config := s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: name, ServiceAccount: account, Rules: rules,
	})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wire{r, next} })
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	cfg := leaderelection.Config{
		Namespace: s.namespace, Identity: name, ElectionID: election, Revision: revision, Lock: lock,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		DefaultWatcher: s.defaultRevision,
		Logger:         slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.LeaderElection, err = leaderelection.New(client, cfg); err != nil {
		s.t.Fatal(err)
	}
	r.AddRunContext(r.work)
	s.all = append(s.all, r)
	return r
}

func (r *replica) start(t *testing.T) {
	r.Start(t.Context(), r.RunContext)
	t.Cleanup(func() {
		r.cut(false)
		if err := r.Quit(); err != nil {
			t.Errorf("replica %s: %v", r.name, err)
		}
		if t.Failed() {
			t.Logf("replica %s:\n%s", r.name, r.log)
		}
	})
}

func (r *replica) work(ctx context.Context) error {
	_, ended := r.Begin()
	defer ended()
	<-ctx.Done()
	r.mu.Lock()
	onStop := r.onStop
	r.mu.Unlock()
	if onStop != nil {
		onStop()
	}
	return nil
}

// eventually waits until f returns true.
func (s *stage) eventually(what string, f func() bool) {
	s.t.Helper()
	waits.Until(s.t, what, f)
}

// leads waits until the run function of r runs.
func (s *stage) leads(r *replica, why string) {
	s.t.Helper()
	from := time.Now()
	s.eventually(r.name+" leads: "+why, r.Live)
	s.t.Logf("%6.3f s: %s leads after %v: %s", time.Since(s.began).Seconds(), r.name, time.Since(from).Round(time.Millisecond), why)
}

func (s *stage) configMap() k8sresourcelock.Snapshot {
	s.t.Helper()
	cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return k8sresourcelock.ConfigMapSnapshot(cm)
}

func (s *stage) lease() k8sresourcelock.Snapshot {
	s.t.Helper()
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return k8sresourcelock.LeaseSnapshot(lease)
}

// holders returns the holders in the ConfigMap and the Lease.
func (s *stage) holders() string {
	s.t.Helper()
	return fmt.Sprintf("%s/%s", s.configMap().Record.HolderIdentity, s.lease().Record.HolderIdentity)
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
