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

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/internal/defaults"
	"incumbent.dev/incumbent/tests/internal/logs"
	"incumbent.dev/incumbent/tests/internal/waits"
)

// election is the one that moves.
const election = leaderelection.GatewayStatusController

// The timing, so short that a whole migration takes a minute.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = 750 * time.Millisecond
)

// soon bounds every wait; what takes this long has failed.
const soon = time.Minute

// rights are the least that a candidate needs for both kinds of lock.
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

// stage is a namespace in which replicas elect.
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
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t: t, cluster: c, namespace: c.Namespace(t), admin: admin, defaultRevision: defaults.New("stable"), began: time.Now()}
}

// span is the life of a run function. The zero end means that it goes on.
type span struct{ from, to time.Time }

// replica is one process's part, with a run function whose life it records.
type replica struct {
	*leaderelection.LeaderElection
	name string
	log  *logs.Buffer

	mu     sync.Mutex
	cutOff bool
	stuck  map[string]chan struct{} // by resource: writes of it wait
	onStop func()                   // what the run function does before it returns; nil: nothing
	spans  []span
	cancel context.CancelFunc
	done   chan error
}

// wire is a replica's connection, which can be cut.
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

// waitsFor is what a request has to wait for; nil: nothing.
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

// hold keeps writes of a resource from being sent, until what it returns is called.
func (r *replica) hold(resource string) (letGo func()) {
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

// WrappedRoundTripper lets client-go find the transport below.
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

// enter runs a replica until the test or quit ends it.
func (s *stage) enter(name, revision string, lock leaderelection.LockType, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := s.prepare(name, revision, lock, "pilot", rights(), change...)
	r.start(s.t)
	return r
}

// prepare makes a replica with the given rights that does not run yet.
func (s *stage) prepare(name, revision string, lock leaderelection.LockType, account string, rules []rbacv1.PolicyRule, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := &replica{name: name, log: &logs.Buffer{}, stuck: map[string]chan struct{}{}, done: make(chan error, 1)}
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
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { r.done <- r.RunContext(ctx) }()
	t.Cleanup(func() {
		r.cut(false)
		if err := r.quit(); err != nil {
			t.Errorf("replica %s: %v", r.name, err)
		}
		if t.Failed() {
			t.Logf("replica %s:\n%s", r.name, r.log)
		}
	})
}

// quit stops the replica in order and returns what RunContext did.
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
	onStop := r.onStop
	r.mu.Unlock()
	if onStop != nil {
		onStop()
	}
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

func (r *replica) works() bool {
	spans := r.lives()
	return len(spans) > 0 && spans[len(spans)-1].to.IsZero()
}

// eventually waits until f holds.
func (s *stage) eventually(what string, f func() bool) {
	s.t.Helper()
	waits.Until(s.t, what, f)
}

// leads waits until r works.
func (s *stage) leads(r *replica, why string) {
	s.t.Helper()
	from := time.Now()
	s.eventually(r.name+" leads: "+why, r.works)
	s.t.Logf("%6.3f s: %s leads after %v: %s", time.Since(s.began).Seconds(), r.name, time.Since(from).Round(time.Millisecond), why)
}

// oneAtATime fails the test when two of the replicas' run functions ran at once. It
// returns how many spans it compared.
func (s *stage) oneAtATime(replicas ...*replica) (spans int) {
	s.t.Helper()
	now := time.Now()
	end := func(x span) time.Time {
		if x.to.IsZero() {
			return now
		}
		return x.to
	}
	for i, a := range replicas {
		spans += len(a.lives())
		for _, b := range replicas[i+1:] {
			for _, x := range a.lives() {
				for _, y := range b.lives() {
					if x.from.Before(end(y)) && y.from.Before(end(x)) {
						s.t.Errorf("%s and %s worked at once: %v to %v and %v to %v", a.name, b.name, x.from, end(x), y.from, end(y))
					}
				}
			}
		}
	}
	return spans
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

// holders says who stands in the two objects.
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
