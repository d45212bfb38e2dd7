package elections

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// election is the one that tests are about.
const election = leaderelection.NamespaceController

// soon bounds every wait of a test; what takes this long has failed.
const soon = waits.Bound

// rights are the least that a candidate needs, for both kinds of lock.
func rights() []rbacv1.PolicyRule {
	names := []string{election, election + "-stable", election + "-canary"}
	for i := range inFlight {
		names = append(names, laneName(i), laneName(i)+"-raw")
	}
	var rules []rbacv1.PolicyRule
	for group, resource := range map[string]string{"": "configmaps", "coordination.k8s.io": "leases"} {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{
				APIGroups: []string{group}, Resources: []string{resource},
				ResourceNames: names, Verbs: []string{"get", "update", "watch"},
			})
	}
	return rules
}

// webhookRights let a candidate follow the default revision.
func webhookRights(names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: names, Verbs: []string{"get", "list", "watch"},
	}}
}

// replica is one process's part, with a run function whose life it records.
type replica struct {
	*leaderelection.LeaderElection
	*lives.Recorder
	lives.Process
	name   string
	client kube.Client
	wire   *wire
	log    *logs.Buffer

	mu     sync.Mutex
	linger chan struct{} // the run function returns once told to stop and this is closed; nil: at once
	fail   chan error    // what the run function returns with although it should go on
	dead   chan struct{} // closed by die
	ends   error         // what RunContext may end with, besides nil
}

// Lives is lives.Candidate's.
func (r *replica) Lives() (string, lives.Spans) { return r.name, r.Spans() }

// stage is a namespace in which replicas elect.
type stage struct {
	t         testing.TB
	cluster   *cluster.Cluster
	namespace string
	lock      leaderelection.LockType
	configs   map[string]*rest.Config
	// system is the namespace whose default revision counts here. It is the stage's own,
	// so that stages with defaults of their own run side by side.
	system string
	blind  map[string]bool // replicas that may not read the default revision
}

// tag is the webhook that says which revision is the default here.
func (s *stage) tag() string { return revisions.DefaultTagWebhook(s.system) }

// calmLease is what a replica has else: room for a machine that does something else meanwhile.
const calmLease = 15 * time.Second

// brisk is a timing for tests that wait for a lease to run out.
func brisk(c *leaderelection.Config) {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = briskLease, 8*time.Second, 2*time.Second
}

// briskLease leaves room for a machine that does something else for a while: a test tells
// its story exactly, and a term that ends for lack of a processor is not part of it.
const briskLease = 10 * time.Second

func newStage(t testing.TB, lock leaderelection.LockType) *stage {
	t.Helper()
	return newStageOn(t, cluster.Shared(t), lock)
}

func newStageOn(t testing.TB, c *cluster.Cluster, lock leaderelection.LockType) *stage {
	t.Helper()
	namespace := c.Namespace(t)
	return &stage{
		t: t, cluster: c, namespace: namespace, system: namespace, lock: lock,
		configs: map[string]*rest.Config{}, blind: map[string]bool{},
	}
}

// identity is the configuration of a replica with a token of its own Pod. A process
// that comes back in the same Pod has the same.
func (s *stage) identity(name string) *rest.Config {
	s.t.Helper()
	if s.configs[name] == nil {
		options := cluster.IdentityOptions{
			Namespace: s.namespace, PodName: name, ServiceAccount: "pilot", Rules: rights(),
			ClusterRules: webhookRights(defaultTag, s.tag()),
		}
		if s.blind[name] {
			options.ServiceAccount, options.ClusterRules = "blind", nil
		}
		s.configs[name] = s.cluster.Identity(s.t, options)
	}
	return rest.CopyConfig(s.configs[name])
}

// replica makes one that does not run yet.
func (s *stage) replica(name, revision string, change ...func(*leaderelection.Config)) *replica {
	s.t.Helper()
	r := &replica{
		name: name, wire: &wire{name: name, requests: map[string]int{}, muted: map[string]chan struct{}{}}, log: &logs.Buffer{},
		Recorder: &lives.Recorder{}, fail: make(chan error, 1), dead: make(chan struct{}),
	}
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
		LeaseDuration: calmLease, RenewDeadline: 12 * time.Second, RetryPeriod: 3 * time.Second,
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
	r.Start(t.Context(), r.RunContext)
	t.Cleanup(func() {
		if !isClosed(r.dead) {
			r.wire.setCut(false)
		}
		r.relent()
		r.wire.end()
		if err := r.Quit(); err != nil && !errors.Is(err, r.ends) {
			t.Errorf("replica %s: %v", r.name, err)
		}
		if t.Failed() {
			t.Logf("replica %s:\n%s", r.name, r.log.String())
		}
	})
}

func (r *replica) work(ctx context.Context) error {
	told, ended := r.Begin()
	defer ended()
	var err error
	select {
	case <-ctx.Done():
	case err = <-r.fail:
	case <-r.dead:
	}
	told()
	r.mu.Lock()
	linger := r.linger
	r.mu.Unlock()
	if linger != nil {
		select {
		case <-linger:
		case <-r.dead:
		}
	}
	return err
}

// insist makes the run function go on when it is told to stop, until relent.
func (r *replica) insist() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.linger = make(chan struct{})
}

func (r *replica) relent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.linger != nil {
		close(r.linger)
		r.linger = nil
	}
}

// die ends the replica as SIGKILL would, as far as others can tell: it sends nothing
// any more, and its run function is gone.
func (r *replica) die() {
	r.wire.setCut(true)
	r.wire.mute(everywhere)
	close(r.dead)
	r.Cancel()
	r.wire.underway.Wait() // what was on its way has arrived, before another of its name comes
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	waits.Until(t, what, f)
}

// claims finds in a log how each term came by its lock.
var claims = regexp.MustCompile(`msg="election phase changed" .*claim=(\S+) .*to=leading`)

// came checks how each of the replica's terms came by the lock, by the elector's own word: a
// release that was not seen ends like one that was, a lease later.
func (r *replica) came(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	for _, match := range claims.FindAllStringSubmatch(r.log.String(), -1) {
		got = append(got, match[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the terms of %s came by the lock as %q, want %q", r.name, got, want)
	}
}

// leader is the one replica that runs.
func leader(t testing.TB, replicas ...*replica) *replica {
	t.Helper()
	var found *replica
	eventually(t, "one replica leads", func() bool {
		found = nil
		for _, r := range replicas {
			if r.Live() {
				found = r
			}
		}
		return found != nil
	})
	return found
}
