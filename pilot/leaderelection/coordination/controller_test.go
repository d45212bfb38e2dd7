package coordination_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// patience limits each wait. Leases are longer, so that no test succeeds because a lease expired.
const (
	patience  = 100 * time.Second
	longLease = 120 * time.Second
)

// fixture is a namespace with coordinators and candidates.
type fixture struct {
	t         testing.TB
	client    kubernetes.Interface
	namespace string
	acting    atomic.Int32
	overlap   atomic.Int32
	revision  atomic.Pointer[string]
	mu        sync.Mutex
	all       []*coordination.Controller
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	c := cluster.Shared(t)
	config := c.Admin()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &fixture{t: t, client: client, namespace: c.Namespace(t)}
	n.revision.Store(new("stable"))
	return n
}

// coordinate starts a coordinator and returns a function that stops it.
func (n *fixture) coordinate(change ...func(*coordination.Config)) (stop func()) {
	n.t.Helper()
	config := coordination.Config{
		Client: n.client, Namespace: n.namespace, Logger: slog.New(slog.DiscardHandler),
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: *n.revision.Load()}, true
		},
	}
	for _, f := range change {
		f(&config)
	}
	c, err := coordination.New(config)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := c.Warm(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	n.all = append(n.all, c)
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() {
		if err := c.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		runs.Wait()
		c.Close()
	})
	n.t.Cleanup(stop)
	return stop
}

// setDefault changes the default revision.
func (n *fixture) setDefault(revision string) {
	n.revision.Store(&revision)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.all {
		c.Refresh()
	}
}

// replica is a process with an elector and a publisher.
type replica struct {
	n        *fixture
	pod      string
	identity string
	elector  *k8sleaderelection.LeaderElector
	leads    atomic.Bool
	began    atomic.Int64
	log      harness.Log
	stop     func()
}

func (n *fixture) replica(lease, pod, revision string, change ...func(*k8sleaderelection.LeaderElectionConfig, *leasecandidate.Config)) *replica {
	n.t.Helper()
	r := &replica{n: n, pod: pod, identity: coordination.CandidateName(pod, lease)}
	key := k8sleaderelection.RevisionKey(revision, false)
	election := k8sleaderelection.LeaderElectionConfig{
		Lock: &k8sresourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: lease}, Client: n.client.CoordinationV1(),
			LockConfig: k8sresourcelock.ResourceLockConfig{Identity: r.identity, Key: key},
		},
		LeaseDuration: longLease, RenewDeadline: longLease / 2, RetryPeriod: longLease / 6, ReleaseOnCancel: true,
		Coordinated: true, Ranked: true, DefaultRevision: func() k8sleaderelection.DefaultRevision {
			return k8sleaderelection.DefaultRevision{Synced: true, Revision: *n.revision.Load()}
		},
		RunFunctions: []func(context.Context) error{r.work}, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	publish := leasecandidate.Config{
		Client: n.client, Namespace: n.namespace, Lease: lease, Pod: pod, BinaryVersion: "1.2.3", Strategy: coordination.DefaultRevision,
		Labels: map[string]string{coordination.RevisionLabel: revision}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&election, &publish)
	}
	elector, err := k8sleaderelection.NewLeaderElector(election)
	if err != nil {
		n.t.Fatal(err)
	}
	publisher, err := leasecandidate.New(publish)
	if err != nil {
		n.t.Fatal(err)
	}
	r.elector = elector
	r.start(publisher)
	return r
}

func (r *replica) start(publisher *leasecandidate.Publisher) {
	electing, endElection := context.WithCancel(context.Background())
	publishing, endPublishing := context.WithCancel(context.Background())
	var elects, publishes sync.WaitGroup
	elects.Go(func() { _ = r.elector.Campaign(electing) })
	publishes.Go(func() { _ = publisher.Run(publishing) })
	r.stop = sync.OnceFunc(func() {
		endPublishing()
		publishes.Wait()
		endElection()
		elects.Wait()
	})
	r.n.t.Cleanup(r.stop)
}

func (r *replica) work(ctx context.Context) error {
	if r.n.acting.Add(1) > 1 {
		r.n.overlap.Add(1)
	}
	r.began.Store(time.Now().UnixNano())
	r.leads.Store(true)
	<-ctx.Done()
	r.leads.Store(false)
	r.n.acting.Add(-1)
	return nil
}

// await waits for a condition.
func (n *fixture) await(what, lease string, holds func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			l, err := n.client.CoordinationV1().Leases(n.namespace).Get(n.t.Context(), lease, metav1.GetOptions{})
			n.t.Fatalf("timed out: %s\n%+v %v", what, l, err)
		}
		<-time.After(5 * time.Millisecond)
	}
	if n.overlap.Load() > 0 {
		n.t.Fatal("two leaders at the same time")
	}
}

func (n *fixture) lease(name string) *coordinationv1.Lease {
	n.t.Helper()
	l, err := n.client.CoordinationV1().Leases(n.namespace).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
	return l
}

func TestController_DefaultRevision(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	var recorded events
	n.coordinate(func(c *coordination.Config) { c.EventRecorder = &recorded })
	a := n.replica("x", "a", "stable")
	n.await("a leads", "x", a.leads.Load)
	b := n.replica("x", "b", "canary")
	n.await("b is published", "x", func() bool {
		_, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Get(t.Context(), b.identity, metav1.GetOptions{})
		return err == nil
	})
	n.setDefault("canary")
	n.await("b leads", "x", b.leads.Load)
	n.setDefault("stable")
	n.await("a leads again", "x", a.leads.Load)
	n.setDefault("canary")
	n.await("b leads again", "x", b.leads.Load)
	// One Event per change of the default revision. Later, another is possible: if the coordinator sees that b stops before b has
	// released the lock, it prefers a.
	n.await("Events", "x", func() bool { return len(recorded.of("LeaderPreferred")) >= 3 })
	if n := len(recorded.of("LeaderPreferred")); len(recorded.of("LeaderNamed")) == 0 || n != 3 {
		t.Errorf("Events: %q", recorded.all)
	}
	b.stop()
	n.await("a leads after b stopped", "x", a.leads.Load)
	spec := n.lease("x").Spec
	if spec.Strategy == nil || *spec.Strategy != coordination.DefaultRevision || spec.PreferredHolder != nil || *spec.LeaseTransitions < 5 {
		t.Errorf("%+v", spec)
	}
	if strings.Contains(a.log.String(), "level=WARN") || strings.Contains(a.log.String(), "settling") {
		t.Errorf("a settled, or logged a warning:\n%s", a.log.String())
	}
}

// Each write is guarded, so two coordinators are harmless. A new coordinator continues from the objects.
func TestController_TwoCoordinators(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	first := n.coordinate()
	second := n.coordinate()
	a := n.replica("x", "a", "stable")
	b := n.replica("x", "b", "canary")
	n.await("a leads", "x", a.leads.Load)
	n.setDefault("canary")
	n.await("b leads", "x", b.leads.Load)
	first()
	n.setDefault("stable")
	n.await("a leads with one coordinator", "x", a.leads.Load)
	second()
	n.setDefault("canary")
	n.coordinate()
	n.await("b leads with a new coordinator", "x", b.leads.Load)
}

// A Lease without a spec and a candidate that never answers do not block the election.
func TestController_IncompleteObjects(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	if _, err := n.client.CoordinationV1().Leases(n.namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mute := &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: "mute.x", Labels: map[string]string{coordination.PriorityLabel: "9"}},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.2.3", EmulationVersion: "1.2.3", Strategy: coordination.DefaultRevision},
	}
	if _, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Create(t.Context(), mute, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.coordinate()
	a := n.replica("x", "a", "stable")
	n.await("a leads", "x", a.leads.Load)
	c, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Get(t.Context(), "mute.x", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return // an API server that just started deletes candidates without a renewTime
	}
	if err != nil || c.Spec.PingTime == nil {
		t.Errorf("the best candidate was not pinged: %+v, %v", c, err)
	}
}

// An election with an edited strategy belongs to another coordinator.
func TestController_EditedStrategy(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	n.coordinate()
	a := n.replica("x", "a", "stable")
	b := n.replica("x", "b", "canary")
	n.await("a leads", "x", a.leads.Load)
	n.setStrategy("x", "example.com/Other")
	n.setDefault("canary")
	if !a.leads.Load() || b.leads.Load() {
		t.Fatal("an election of another strategy was changed")
	}
	n.setStrategy("x", coordination.DefaultRevision)
	n.await("b leads", "x", b.leads.Load)
}

func (n *fixture) setStrategy(name string, strategy coordinationv1.CoordinatedLeaseStrategy) {
	n.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		l := n.lease(name)
		l.Spec.Strategy = &strategy
		_, err := n.client.CoordinationV1().Leases(n.namespace).Update(n.t.Context(), l, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// The conflict is logged once and recorded as an Event on the lock and the candidates. The leader stays.
func TestController_StrategiesDisagree(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	var log harness.Log
	var recorded events
	n.coordinate(func(c *coordination.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.EventRecorder = &recorded
	})
	a := n.replica("x", "a", "stable")
	n.await("a leads", "x", a.leads.Load)
	b := n.replica("x", "b", "canary", func(_ *k8sleaderelection.LeaderElectionConfig, p *leasecandidate.Config) {
		p.Strategy = "example.com/Other"
	})
	n.await("conflict logged", "x", func() bool { return log.Count("request different strategies") > 0 })
	n.setDefault("canary")
	b.stop()
	n.await("conflict resolved", "x", func() bool { return log.Count("problem of the election resolved") > 0 })
	if !a.leads.Load() || log.Count("request different strategies") != 1 {
		t.Errorf("a leads: %v\n%s", a.leads.Load(), log.String())
	}
	got := recorded.of("StrategiesDisagree")
	want := []string{"Warning *v1.Lease x", "Warning *v1beta1.LeaseCandidate " + a.identity, "Warning *v1beta1.LeaseCandidate " + b.identity}
	if !slices.Equal(got, want) {
		t.Errorf("Events: %q", got)
	}
}

type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s %T %s: %s", reason, eventType, object, object.(metav1.Object).GetName(), fmt.Sprintf(message, args...)))
}

// of returns the Events of a reason.
func (e *events) of(reason string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if rest, match := strings.CutPrefix(event, reason+" "); match {
			object, _, _ := strings.Cut(rest, ": ")
			found = append(found, object)
		}
	}
	slices.Sort(found)
	return found
}

// The coordinator of the API server names candidates of this module and requests a handover to an older emulation version.
func TestController_KubernetesStrategy(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	emulating := func(version string) func(*k8sleaderelection.LeaderElectionConfig, *leasecandidate.Config) {
		return func(_ *k8sleaderelection.LeaderElectionConfig, p *leasecandidate.Config) {
			p.Strategy = coordination.OldestEmulationVersion
			p.EmulationVersion = version
		}
	}
	a := n.replica("x", "a", "stable", emulating("1.2.0"))
	n.await("a leads", "x", a.leads.Load)
	b := n.replica("x", "b", "stable", emulating("1.1.0"))
	n.await("b leads", "x", b.leads.Load)
	b.stop()
	n.await("a leads again", "x", a.leads.Load)
	if strings.Contains(a.log.String(), "settling") || strings.Contains(b.log.String(), "settling") {
		t.Errorf("a candidate settled:\n%s\n%s", a.log.String(), b.log.String())
	}
}
