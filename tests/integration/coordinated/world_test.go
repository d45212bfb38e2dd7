package coordinated

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// world is a namespace with an election.
type world struct {
	t        testing.TB
	c        *cluster.Cluster
	home     string
	chooser  string // service account of the coordinator
	admin    kube.Client
	acting   atomic.Int32 // active leaders
	most     atomic.Int32 // maximum of acting
	revision *defaults.Watcher
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c := cluster.Shared(t)
	w := &world{t: t, c: c, home: c.Namespace(t), chooser: "pilot", revision: defaults.New("stable")}
	w.admin = w.connect(c.Admin())
	return w
}

// connect returns a client whose connections end with the test.
func (w *world) connect(config *rest.Config) kube.Client {
	w.t.Helper()
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	harness.Must(w.t, err)
	w.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}

// identity returns the credentials of a Pod with the permissions of a coordinated server and coordinator.
func (w *world) identity(pod, account string) *rest.Config {
	w.t.Helper()
	rules := access.Of(w.t, "coordinated", w.home, "stable", "x", leaderelection.Coordinator)
	return w.c.Identity(w.t, cluster.IdentityOptions{
		Namespace: w.home, PodName: pod, ServiceAccount: account, Rules: rules.Namespace, ClusterRules: rules.Cluster,
	})
}

// candidate is a process that campaigns until the test ends or stop is called.
type candidate struct {
	client   kube.Client
	election *leaderelection.LeaderElection
	log      harness.Log
	leads    atomic.Bool
	stop     func()
}

// candidate starts a process with its own credentials.
func (w *world) candidate(pod, revision string, change ...func(*leaderelection.Config)) *candidate {
	w.t.Helper()
	config := w.identity(pod, "pilot")
	object, err := w.admin.Kube().CoreV1().Pods(w.home).Get(w.t.Context(), pod, metav1.GetOptions{})
	harness.Must(w.t, err)
	c := &candidate{client: w.connect(config)}
	cfg := leaderelection.Config{
		Namespace: w.home, Identity: pod, ElectionID: "x", Revision: revision, Lock: leaderelection.LockTypeLease,
		LeaseDuration: 10 * time.Minute, RenewDeadline: 6 * time.Minute, RetryPeriod: time.Second,
		Coordination: &coordination.CandidateConfig{Strategy: coordination.DefaultRevision, BinaryVersion: "1.0.0", PodUID: object.UID},
		Logger:       slog.New(slog.NewTextHandler(&c.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	if c.election, err = leaderelection.New(c.client, cfg); err != nil {
		w.t.Fatal(err)
	}
	c.election.AddRunContext(func(ctx context.Context) error {
		w.most.Store(max(w.most.Load(), w.acting.Add(1)))
		c.leads.Store(true)
		<-ctx.Done()
		c.leads.Store(false)
		w.acting.Add(-1)
		return nil
	})
	c.stop = harness.Background(w.t, c.election.RunContext)
	return c
}

// await waits for a condition and checks one-at-a-time.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	harness.Until(w.t, what, holds)
	if w.most.Load() > 1 {
		w.t.Fatal("two leaders at the same time")
	}
}

// coordinate runs a coordinator until the test ends.
func (w *world) coordinate() {
	w.t.Helper()
	c, err := coordination.New(coordination.Config{
		Client: w.connect(w.identity("coordinator", w.chooser)).Kube(), Namespace: w.home, Logger: slog.New(slog.DiscardHandler),
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: w.revision.GetDefault()}, true
		},
	})
	harness.Must(w.t, err)
	w.revision.AddHandler(func(string) { c.Refresh() })
	harness.Must(w.t, c.Warm(w.t.Context()))
	harness.Background(w.t, func(ctx context.Context) error {
		defer c.Close()
		return c.Run(ctx)
	})
}

// lease returns the lock, or nil if it does not exist.
func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	return get(w, w.admin.Kube().CoordinationV1().Leases(w.home).Get, "x")
}

// get returns an object, or nil if it does not exist. It repeats a failed request.
func get[T any](w *world, send func(context.Context, string, metav1.GetOptions) (*T, error), name string) (object *T) {
	w.t.Helper()
	harness.Until(w.t, "API server responds", func() bool {
		var err error
		object, err = send(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			object = nil
		}
		return err == nil || apierrors.IsNotFound(err)
	})
	return object
}
