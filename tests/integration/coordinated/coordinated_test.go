package coordinated

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// world is a namespace with candidates of one election.
type world struct {
	t        *testing.T
	c        *cluster.Cluster
	home     string
	chooser  string // the coordinator's service account
	acting   atomic.Int32
	most     atomic.Int32 // that have acted at once
	revision atomic.Pointer[string]
}

// client is that of a Pod with the rights of a server that coordinates and is coordinated.
func (w *world) client(pod, account string) kube.Client {
	w.t.Helper()
	rights := bootstrap.Rights(bootstrap.Config{Coordinator: true, ElectionStrategy: coordination.DefaultRevision, Lock: "lease"})
	rights.Add(manifests.Rights{Leases: []string{"x"}})
	config := w.c.Identity(w.t, cluster.IdentityOptions{
		Namespace: w.home, PodName: pod, ServiceAccount: account, Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
	client, err := kube.NewClient(coordination.Quiet(config), kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}

// candidate is one that takes part until the test's end, or stop.
type candidate struct {
	client     kube.Client
	election   *leaderelection.LeaderElection
	leads, fit atomic.Bool
	stop       func()
}

func (w *world) candidate(pod, revision string) *candidate {
	w.t.Helper()
	client := w.client(pod, "pilot")
	object, err := w.admin().Kube().CoreV1().Pods(w.home).Get(w.t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	le, err := leaderelection.New(client, leaderelection.Config{
		Namespace: w.home, Identity: pod, ElectionID: "x", Revision: revision, Lock: leaderelection.LeaseLock,
		// Longer than an API server takes to come back on a machine that is busy: nothing here waits for a lease to end.
		LeaseDuration: 10 * time.Minute, RenewDeadline: 6 * time.Minute, RetryPeriod: time.Second,
		Coordination: &leaderelection.Coordination{Strategy: coordination.DefaultRevision, BinaryVersion: "1.0.0", PodUID: object.UID},
		Logger:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &candidate{client: client, election: le}
	c.fit.Store(true)
	le.Fit(func(context.Context) error {
		if !c.fit.Load() {
			return errors.New("told so")
		}
		return nil
	})
	le.AddRunContext(func(ctx context.Context) error {
		w.most.Store(max(w.most.Load(), w.acting.Add(1)))
		c.leads.Store(true)
		<-ctx.Done()
		c.leads.Store(false)
		w.acting.Add(-1)
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := le.RunContext(ctx); err != nil {
			w.t.Error(err)
		}
	})
	c.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(c.stop)
	return c
}

func (w *world) admin() kube.Client {
	client, err := kube.NewClient(coordination.Quiet(w.c.Admin()), kube.WithOwnConnections())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}

// await waits for longer than harness.Until does: a watch that an API server's restart has ended begins again after up to a minute.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(3 * harness.Patience); !holds(); {
		if time.Now().After(end) {
			w.t.Fatalf("waited for: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
	if w.most.Load() > 1 {
		w.t.Fatal("two have acted at once")
	}
}

// coordinate starts the coordinator.
func (w *world) coordinate() *coordination.Controller {
	w.t.Helper()
	controller, err := coordination.New(coordination.Config{
		Client: w.client("coordinator", w.chooser).Kube(), Namespace: w.home, Logger: slog.New(slog.DiscardHandler),
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: *w.revision.Load()}, true
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := controller.Warm(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = controller.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait(); controller.Close() })
	return controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.Shared(t)
	if c.External() {
		t.Skip("a cluster that is there already may run without the feature")
	}
	w := &world{t: t, c: c, home: c.Namespace(t), chooser: "pilot"}
	w.revision.Store(new("stable"))
	return w
}

func TestACoordinatorChoosesAmongServers(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	stable, canary := w.candidate("stable-1", "stable"), w.candidate("canary-1", "canary")
	w.await("the default revision leads", stable.leads.Load)
	candidates := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	w.await("both are candidates", func() bool {
		list, err := candidates.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	})
	mine, err := candidates.Get(t.Context(), "stable-1.x", metav1.GetOptions{})
	if err != nil || len(mine.OwnerReferences) != 1 || mine.Labels[coordination.RevisionLabel] != "stable" {
		t.Errorf("it is published as %+v, %v", mine, err)
	}
	w.revision.Set("canary")
	w.await("the new default leads", canary.leads.Load)
	canary.unfit.Store(true)
	w.await("one that is unfit says so", func() bool {
		mine, err := candidates.Get(t.Context(), "canary-1.x", metav1.GetOptions{})
		return err == nil && mine.Labels[coordination.FitLabel] == "false"
	})
	canary.unfit.Store(false)
	canary.stop()
	w.await("the other follows", stable.leads.Load)
	if _, err := candidates.Get(t.Context(), "canary-1.x", metav1.GetOptions{}); err == nil {
		t.Error("the one that has ended is a candidate still")
	}
}
