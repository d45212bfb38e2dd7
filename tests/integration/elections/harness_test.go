package elections

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// election is the ID of the election that the tests use.
const election = leaderelection.NamespaceController

// lockRules allow the verbs on the named locks. Without names they allow them on all locks.
func lockRules(names []string, verbs ...string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for group, resource := range map[string]string{"": "configmaps", "coordination.k8s.io": "leases"} {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs,
		})
	}
	return rules
}

// fixture is a namespace with candidates.
type fixture struct {
	testing.TB
	cluster   *cluster.Cluster
	namespace string
	lock      leaderelection.LockType
}

func newFixture(t testing.TB, lock leaderelection.LockType) *fixture {
	t.Helper()
	return newFixtureIn(t, cluster.Shared(t), lock)
}

func newFixtureIn(t testing.TB, c *cluster.Cluster, lock leaderelection.LockType) *fixture {
	t.Helper()
	return &fixture{TB: t, cluster: c, namespace: c.Namespace(t), lock: lock}
}

// config returns a client configuration with a token of a new Pod. It has the least permissions that a ranked candidate needs. A worker
// may also write workMap.
func (x *fixture) config(name string) *rest.Config {
	x.Helper()
	rules := slices.Concat(lockRules(nil, "create"), lockRules([]string{election}, "get", "update", "watch"), lockRules([]string{workMap}, "patch"))
	return x.cluster.Identity(x, cluster.IdentityOptions{
		Namespace: x.namespace, PodName: name, ServiceAccount: "pilot", Rules: rules,
		ClusterRules: []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
			ResourceNames: []string{tagging.DefaultTagWebhook(x.namespace)}, Verbs: []string{"get", "list", "watch"},
		}},
	})
}

// candidate is one process of an election. It records when its run function runs.
type candidate struct {
	*leaderelection.LeaderElection
	*lives.Recorder
	lives.Process
	name      string
	namespace string
	client    kube.Client
	sent      harness.Log // requests
	log       harness.Log
}

// Lives implements lives.Candidate.
func (c *candidate) Lives() (string, lives.Spans) { return c.name, c.Spans() }

// candidate returns a candidate that does not run yet.
func (x *fixture) candidate(name, revision string, options ...func(*leaderelection.Config)) *candidate {
	x.Helper()
	return x.candidateAt(name, revision, x.config(name), options...)
}

func (x *fixture) candidateAt(name, revision string, config *rest.Config, options ...func(*leaderelection.Config)) *candidate {
	x.Helper()
	c := &candidate{name: name, namespace: x.namespace, Recorder: &lives.Recorder{}}
	config.Wrap(harness.Requests(&c.sent))
	var err error
	c.client, err = kube.NewClient(config, kube.WithOwnConnections())
	harness.Must(x, err)
	x.Cleanup(func() { kube.CloseIdleConnections(c.client) })
	cfg := leaderelection.Config{
		Namespace: x.namespace, Identity: name, ElectionID: election, Revision: revision, Lock: x.lock,
		LeaseDuration: 24 * time.Second, RenewDeadline: 18 * time.Second, RetryPeriod: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&c.log, nil)),
	}
	for _, option := range options {
		option(&cfg)
	}
	c.LeaderElection, err = leaderelection.New(c.client, cfg)
	harness.Must(x, err)
	c.AddRunContext(c.work)
	return c
}

// ranked returns a candidate that watches the default revision. Its watcher has synced.
func (x *fixture) ranked(name, revision string, options ...func(*leaderelection.Config)) *candidate {
	x.Helper()
	var later struct{ revisions.DefaultWatcher } // the watcher needs the client of the candidate
	c := x.candidate(name, revision, append(options, func(c *leaderelection.Config) { c.DefaultWatcher = &later })...)
	later.DefaultWatcher = x.watcher(c)
	return c
}

// watcher runs a default watcher with the client of c until the test ends.
func (x *fixture) watcher(c *candidate) revisions.DefaultWatcher {
	x.Helper()
	watcher := revisions.NewDefault(c.client, revisions.Config{Namespace: x.namespace, Logger: slog.New(slog.NewTextHandler(&c.log, nil))})
	harness.Background(x, func(ctx context.Context) error { watcher.Run(ctx.Done()); return nil })
	harness.Until(x, c.name+" has synced the default revision", watcher.HasSynced)
	return watcher
}

// start runs the candidate until the test ends or the test calls Quit.
func (c *candidate) start(t testing.TB) *candidate {
	c.Start(t.Context(), c.RunContext)
	t.Cleanup(func() {
		if err := c.Quit(); err != nil {
			t.Errorf("candidate %s: %v", c.name, err)
		}
		if t.Failed() {
			t.Logf("candidate %s:\n%s", c.name, c.log.String())
		}
	})
	return c
}

func (c *candidate) work(ctx context.Context) error {
	_, ended := c.Begin()
	defer ended()
	<-ctx.Done()
	return nil
}

func (c *candidate) follows(leader string) func() bool {
	return func() bool {
		holder, _ := c.Leader()
		return holder == leader
	}
}

// setDefault sets the default revision in the namespace of the fixture, so that tests run in parallel.
func (x *fixture) setDefault(revision string) {
	x.Helper()
	x.cluster.SetRevision(x, tagging.DefaultTagWebhook(x.namespace), revision)
}
