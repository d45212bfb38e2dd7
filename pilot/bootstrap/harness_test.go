package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// patience bounds every wait.
	patience = harness.Patience
	// electionID is the election of the tests' own row.
	electionID = "tests-election"
	// guarded is the ConfigMap that the row's controller writes.
	guarded = "guarded"
)

var (
	quiet   = slog.New(slog.DiscardHandler)
	errAway = errors.New("connection refused by the test")
	await   = harness.Until
)

// goodConfig is a valid configuration of a server that reaches no API server.
func goodConfig() Config {
	return Config{
		Config:     leaderelection.Config{Namespace: "istio-system", Identity: "pilot-a", Revision: "stable", Logger: quiet},
		RESTConfig: &rest.Config{Host: "http://127.0.0.1:1"}, Address: "127.0.0.1:0", CABundle: "/ca.pem",
	}
}

// mustNew returns a server that was not started, with the rows of its configuration if rows is nil.
func mustNew(t *testing.T, config Config, rows []election) *Server {
	t.Helper()
	if rows == nil {
		rows = config.rows()
	}
	s, err := newServer(config, rows)
	harness.Must(t, err)
	return s
}

// answered is a client configuration. The function answers its requests.
func answered(answer func(apiserver.Request) apiserver.Fault) *rest.Config {
	s := apiserver.New()
	s.On(answer)
	return s.Config()
}

// away is the answer of an API server that cannot be reached.
func away(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: errAway} }

// environment is a namespace of the shared cluster.
type environment struct {
	cluster *cluster.Cluster
	admin   kube.Client
	home    string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	c := cluster.Shared(t)
	return &environment{cluster: c, admin: c.Client(t), home: c.Namespace(t)}
}

// identity is the client configuration of a Pod, with the permissions of the chart and of the tests' controller.
func (e *environment) identity(t *testing.T, pod string) *rest.Config {
	t.Helper()
	rules := access.Of(t, "defaults", e.home, "stable", electionID)
	return e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: pod, ServiceAccount: "pilot", Rules: append(rules.Namespace, controllerRule), ClusterRules: rules.Cluster,
	})
}

// controllerRule is the right of the tests' controller.
var controllerRule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "update"}}

// config is the configuration of a replica. Its lease is long, so no lease expires within a test.
func (e *environment) config(t *testing.T, pod string) Config {
	t.Helper()
	return Config{
		Config: leaderelection.Config{
			Namespace: e.home, Identity: pod, Revision: "stable", LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		},
		RESTConfig: e.identity(t, pod), Address: "127.0.0.1:0", CABundle: "/no/such/file",
	}
}

// breakRecord makes the record of the lock unreadable.
func (e *environment) breakRecord(t *testing.T) {
	t.Helper()
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: electionID}}
	err := cluster.Edit(t.Context(), e.admin.Kube().CoreV1().ConfigMaps(e.home), lock, func(lock *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&lock.ObjectMeta, locks.LeaderElectionRecordAnnotationKey, "no record")
	})
	harness.Must(t, err)
}

// controller is the tests' own job. It runs until its context ends, and longer if held is set.
type controller struct {
	client kube.Client
	warms  chan struct{} // receives one value for each Warm
	cold   chan struct{} // if set, Warm waits for it too
	began  chan struct{} // receives one value for each term
	held   chan struct{} // if set, Run waits for it too
	fails  chan error
	closed bool
	// problem is the error that its caches report.
	problem atomic.Pointer[error]
}

func newController() *controller {
	return &controller{warms: make(chan struct{}, 100), began: make(chan struct{}, 100), fails: make(chan error, 1)}
}

func (c *controller) Warm(ctx context.Context) error {
	c.warms <- struct{}{}
	if c.cold != nil {
		select {
		case <-c.cold:
		case <-ctx.Done():
		}
	}
	return nil
}

func (c *controller) Run(ctx context.Context) error {
	c.began <- struct{}{}
	select {
	case <-ctx.Done():
	case err := <-c.fails:
		return err
	}
	if c.held != nil {
		<-c.held
	}
	return nil
}

func (c *controller) Close() { c.closed = true }

func (c *controller) Problem() error {
	if err := c.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// rows is a table with one election for this controller.
func (c *controller) rows() []election {
	return []election{{
		id: electionID,
		newJob: func(client kube.Client, _ Config, _ tools) (job, error) {
			c.client = client
			return c, nil
		},
		writes: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{guarded}}},
	}}
}

// write creates a ConfigMap with the controller's client.
func (c *controller) write(ctx context.Context, namespace, name string) error {
	_, err := c.client.Kube().CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// replica is a running server.
type replica struct {
	*Server
	lines *harness.Log
	end   func() error // stops it and returns the result of Run
}

// start runs a server until the test ends.
func start(t *testing.T, config Config, rows []election) *replica {
	t.Helper()
	r := &replica{lines: &harness.Log{}}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(r.lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r.Server = mustNew(t, config, rows)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		_ = r.end()
		if t.Failed() {
			t.Logf("%s logged:\n%s", config.Identity, r.lines)
		}
	})
	await(t, "the server listens", func() bool { return r.Address() != "" })
	return r
}

// stop ends the server and fails the test if Run returned an error.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func (r *replica) page(t *testing.T, path string) (int, string) {
	t.Helper()
	return harness.Page(t, r.Address(), path)
}

// metric returns a sample, empty if there is none.
func (r *replica) metric(t *testing.T, sample string) string {
	t.Helper()
	return harness.Metric(t, r.Address(), sample)
}

// election returns the first of the server's elections, from /debug/elections.
func (r *replica) election(t *testing.T) inspect.Election {
	t.Helper()
	var all []inspect.Election
	_, text := r.page(t, "/debug/elections")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	return all[0]
}

func (r *replica) leads(t *testing.T) {
	t.Helper()
	await(t, "the server leads", func() bool { return r.election(t).Process.Leading })
}

// follows waits until the server observes a leader.
func (r *replica) follows(t *testing.T, leader string) {
	t.Helper()
	await(t, "the server follows "+leader, func() bool { return r.election(t).Holder == leader })
}
