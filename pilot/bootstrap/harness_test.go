package bootstrap

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// patience bounds every wait; none is expected to come near.
	patience = harness.Patience
	// electionID is that of the tests' own row.
	electionID = "tests-election"
	// guarded is the ConfigMap that the row's controller writes.
	guarded = "guarded"
)

// environment is a namespace of the shared cluster.
type environment struct {
	cluster *cluster.Cluster
	admin   kube.Client
	home    string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	c := cluster.Shared(t)
	admin := c.Client(t)
	return &environment{cluster: c, admin: admin, home: c.Namespace(t)}
}

// breakRecord makes the lock's record one that cannot be read.
func (e *environment) breakRecord(t *testing.T) {
	t.Helper()
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: electionID}}
	err := cluster.Edit(t.Context(), e.admin.Kube().CoreV1().ConfigMaps(e.home), lock, func(lock *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&lock.ObjectMeta, locks.LeaderElectionRecordAnnotationKey, "no record")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// identity is a Pod's, with the manifests' rights and those of the tests' controller.
func (e *environment) identity(t *testing.T, pod string) *rest.Config {
	t.Helper()
	return e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: pod, ServiceAccount: "pilot", Rules: e.rules(), ClusterRules: manifests.ClusterRules(rights(electionID)),
	})
}

func (e *environment) rules() []rbacv1.PolicyRule {
	return append(manifests.NamespaceRules(rights(electionID)),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "update"}})
}

// rights are those of all rows of the table, with further locks, for the revision that config gives.
func rights(locks ...string) manifests.Rights {
	all := Rights(Config{Revision: "stable"})
	all.Add(manifests.Rights{ConfigMaps: locks, Leases: locks})
	return all
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// controller is a job of the tests: it works until it is told to stop, and longer if held.
type controller struct {
	client kube.Client
	warms  chan struct{} // once for each Warm
	cold   chan struct{} // nil, or what Warm waits for beside its context
	began  chan struct{} // once for each term
	held   chan struct{} // nil, or what Run waits for beside its context
	fails  chan error
	closed bool
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

// rows is a table of one election, whose controller this is.
func (c *controller) rows() []election {
	return []election{{
		id: electionID,
		guards: func(client kube.Client, _ Config, _ tools) (job, error) {
			c.client = client
			return c, nil
		},
		writes: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{guarded}}},
	}}
}

// write creates a ConfigMap by the client that the controller was given.
func (c *controller) write(ctx context.Context, namespace, name string) error {
	_, err := c.client.Kube().CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// replica is a server that runs.
type replica struct {
	*Server
	lines *harness.Log
	end   func() error // stops it, and says how it ended
}

// config is that of a replica. Its lease is long: what happens within a test was not
// caused by one that ran out.
func (e *environment) config(t *testing.T, pod string) Config {
	t.Helper()
	return Config{
		RESTConfig: e.identity(t, pod), Namespace: e.home, Identity: pod, Revision: "stable", Address: "127.0.0.1:0", CABundle: "/no/such/file",
		LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
	}
}

// start runs a server until the test's end.
func start(t *testing.T, config Config, rows []election) *replica {
	t.Helper()
	r := &replica{lines: &harness.Log{}}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(r.lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var err error
	if r.Server, err = newServer(config, rows); err != nil {
		t.Fatal(err)
	}
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
	await(t, "it listens", func() bool { return r.Address() != "" })
	return r
}

// await looks again and again until something holds.
var await = harness.Until

// page asks a server for a page, and metric for a sample, "" when there is none.
func (r *replica) page(t *testing.T, path string) (int, string) {
	t.Helper()
	return harness.Page(t, r.Address(), path)
}

func (r *replica) metric(t *testing.T, sample string) string {
	t.Helper()
	return harness.Metric(t, r.Address(), sample)
}

// states are the server's elections, at /debug/elections.
func (r *replica) states(t *testing.T) (all []electionState) {
	t.Helper()
	_, text := r.page(t, "/debug/elections")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	return all
}

// election is the first of them.
func (r *replica) election(t *testing.T) electionState {
	t.Helper()
	return r.states(t)[0]
}

func (r *replica) leads(t *testing.T) {
	t.Helper()
	await(t, "it leads", func() bool { return r.election(t).Leading })
}

// configMapRecord is what a ConfigMap lock says, as istiod reads it.
func (e *environment) configMapRecord(t *testing.T) (record locks.LeaderElectionRecord, annotations map[string]string) {
	t.Helper()
	lock, err := e.admin.Kube().CoreV1().ConfigMaps(e.home).Get(t.Context(), electionID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lock.Annotations[locks.LeaderElectionRecordAnnotationKey]), &record); err != nil {
		t.Fatal(err)
	}
	return record, lock.Annotations
}

// requests notes what passes a transport, before it is sent.
type requests struct {
	mu  sync.Mutex
	all []noted
}

type noted struct {
	*http.Request
	at time.Time
}

// through has a configuration's requests noted.
func (r *requests) through(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			r.mu.Lock()
			r.all = append(r.all, noted{req, time.Now()})
			r.mu.Unlock()
			return next.RoundTrip(req)
		})
	})
	return config
}

// that are those for which a condition holds.
func (r *requests) that(holds func(*http.Request) bool) (found []noted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.all {
		if holds(n.Request) {
			found = append(found, n)
		}
	}
	return found
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
