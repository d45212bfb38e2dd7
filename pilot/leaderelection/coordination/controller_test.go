package coordination_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// patience bounds each wait; leases are long enough that what is waited for cannot be an expiry.
const (
	patience  = 100 * time.Second
	longLease = 120 * time.Second
)

// coordinated is a namespace with coordinators and candidates.
type coordinated struct {
	t         testing.TB
	client    kubernetes.Interface
	namespace string
	acting    atomic.Int32
	overlap   atomic.Int32
	revision  atomic.Pointer[string]
	mu        sync.Mutex
	all       []*coordination.Controller
}

func inNamespace(t testing.TB) *coordinated {
	t.Helper()
	c := cluster.Shared(t)
	if c.External() {
		t.Skip("a cluster that is there already may run without the feature")
	}
	config := c.Admin()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &coordinated{t: t, client: client, namespace: c.Namespace(t)}
	n.revision.Store(new("stable"))
	return n
}

// coordinate starts a coordinator, whose end it returns.
func (n *coordinated) coordinate(change ...func(*coordination.Config)) (stop func()) {
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

// flip makes another revision the default.
func (n *coordinated) flip(revision string) {
	n.revision.Store(&revision)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.all {
		c.Reconsider()
	}
}

// replica is a process: an elector that waits to be named, and what it publishes of itself.
type replica struct {
	n        *coordinated
	pod      string
	identity string
	elector  *k8sleaderelection.LeaderElector
	leads    atomic.Bool
	began    atomic.Int64
	fit      atomic.Bool
	log      harness.Log
	stop     func()
	quiet    func() // stops publishing alone
}

func (n *coordinated) replica(lease, pod, revision string, change ...func(*k8sleaderelection.LeaderElectionConfig, *coordination.PublisherConfig)) *replica {
	n.t.Helper()
	r := &replica{n: n, pod: pod, identity: coordination.CandidateName(pod, lease)}
	r.fit.Store(true)
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
	publish := coordination.PublisherConfig{
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
	publisher, err := coordination.NewPublisher(publish)
	if err != nil {
		n.t.Fatal(err)
	}
	r.elector = elector
	r.start(publisher)
	return r
}

func (r *replica) start(publisher *coordination.Publisher) {
	electing, endElection := context.WithCancel(context.Background())
	publishing, endPublishing := context.WithCancel(context.Background())
	var elects, publishes sync.WaitGroup
	elects.Go(func() { _ = r.elector.Campaign(electing) })
	publishes.Go(func() { _ = publisher.Run(publishing) })
	r.quiet = sync.OnceFunc(func() { endPublishing(); publishes.Wait() })
	r.stop = sync.OnceFunc(func() {
		r.quiet()
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

// awaits waits until something holds, and fails with what the lock shows.
func (n *coordinated) awaits(what, lease string, holds func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			l, err := n.client.CoordinationV1().Leases(n.namespace).Get(n.t.Context(), lease, metav1.GetOptions{})
			n.t.Fatalf("waited for: %s\n%+v %v", what, l, err)
		}
		<-time.After(5 * time.Millisecond)
	}
	if n.overlap.Load() > 0 {
		n.t.Fatal("two have acted at once")
	}
}

func (n *coordinated) lease(name string) *coordinationv1.Lease {
	n.t.Helper()
	l, err := n.client.CoordinationV1().Leases(n.namespace).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
	return l
}

func TestTheDefaultRevisionLeads(t *testing.T) {
	n := inNamespace(t)
	n.coordinate()
	a := n.replica("x", "a", "stable")
	n.awaits("a, which is alone, leads", "x", a.leads.Load)
	b := n.replica("x", "b", "canary")
	n.awaits("b is a candidate", "x", func() bool {
		_, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Get(t.Context(), b.identity, metav1.GetOptions{})
		return err == nil
	})
	for _, flip := range []struct {
		revision string
		to       *replica
	}{{"canary", b}, {"stable", a}, {"canary", b}} {
		began := time.Now()
		n.flip(flip.revision)
		n.awaits("the default is "+flip.revision, "x", flip.to.leads.Load)
		t.Logf("%s leads %v after the default has become %s", flip.to.pod, time.Duration(flip.to.began.Load()-began.UnixNano()), flip.revision)
	}
	b.stop()
	n.awaits("a follows b's end", "x", a.leads.Load)
	spec := n.lease("x").Spec
	if spec.Strategy == nil || *spec.Strategy != coordination.DefaultRevision || spec.PreferredHolder != nil || *spec.LeaseTransitions < 5 {
		t.Errorf("%+v", spec)
	}
	if strings.Contains(a.log.String(), "level=WARN") || strings.Contains(a.log.String(), "settling") {
		t.Errorf("a has settled, or warned:\n%s", a.log.String())
	}
}
