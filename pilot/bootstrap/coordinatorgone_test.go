package bootstrap

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// gone are servers of two revisions, without a coordinator among them.
type gone struct {
	t       *testing.T
	server  *apiserver.Server
	watcher *defaults.Watcher
	log     io.Writer
}

// elect runs an election of a Lease.
func (g *gone) elect(id, identity, revision string, change func(*leaderelection.Config), prepare func(*leaderelection.LeaderElection)) (*leaderelection.LeaderElection, func()) {
	g.t.Helper()
	epoch := time.Now()
	cfg := leaderelection.Config{
		Namespace: "istio-system", ElectionID: id, Identity: identity, Revision: revision, Lock: leaderelection.LockTypeLease, LockClient: g.server.Kube(),
		Logger: slog.New(slog.NewTextHandler(g.log, nil)), DefaultWatcher: g.watcher,
		Clock: k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) }),
	}
	change(&cfg)
	le, err := leaderelection.New(electiontest.KubeClient(g.server.Kube()), cfg)
	harness.Must(g.t, err)
	prepare(le)
	return le, harness.Background(g.t, le.RunContext)
}

// serve runs a coordinated election, and the check of the coordinator as a server does.
func (g *gone) serve(identity, revision string) *leaderelection.LeaderElection {
	le, _ := g.elect("work", identity, revision, func(c *leaderelection.Config) {
		c.Coordination = &coordination.CandidateConfig{Strategy: coordination.DefaultRevision, BinaryVersion: "1.0.0"}
	}, func(*leaderelection.LeaderElection) {})
	s := &site{
		config: Config{Config: leaderelection.Config{Namespace: "istio-system"}, ElectionStrategy: coordination.DefaultRevision},
		log:    slog.New(slog.DiscardHandler), own: electiontest.KubeClient(g.server.Kube()), mine: []*leaderelection.LeaderElection{le},
	}
	if !s.config.followsCoordinator() {
		g.t.Error("the server does not check the coordinator")
	}
	harness.Background(g.t, s.followCoordinator)
	return le
}

// coordinate runs a coordinator in another process.
func (g *gone) coordinate() (stop func()) {
	c, err := coordination.New(coordination.Config{
		Client: g.server.Kube(), Namespace: "istio-system", Logger: slog.New(slog.NewTextHandler(g.log, nil)),
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: g.watcher.GetDefault()}, true
		},
	})
	harness.Must(g.t, err)
	g.watcher.AddHandler(func(string) { c.Refresh() })
	_, end := g.elect(leaderelection.Coordinator, "coordinator", "stable", func(*leaderelection.Config) {}, func(le *leaderelection.LeaderElection) {
		le.AddWarmup(c.Warm)
		le.AddRunContext(func(ctx context.Context) error { return c.Run(ctx) })
	})
	return func() { end(); c.Close() }
}

// A leader that a coordinator named hands over after a change of the default revision, although no server can be the coordinator any more.
// When a coordinator runs again, it chooses the leader.
func TestCoordinator_Gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &harness.Log{}
		g := &gone{t: t, server: apiserver.New(), watcher: defaults.New("stable"), log: log}
		a, b := g.serve("a", "stable"), g.serve("b", "canary")
		check := func(when string, leader *leaderelection.LeaderElection, why string) {
			t.Helper()
			for _, le := range []*leaderelection.LeaderElection{a, b} {
				if s := le.Status(); s.Leading != (le == leader) || s.Uncoordinated != why {
					t.Errorf("%s: %s leads: %v, uncoordinated: %q, want %q", when, s.Identity, s.Leading, s.Uncoordinated, why)
				}
			}
		}
		g.server.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: time.Millisecond} }) // an answer is later than its ping
		strategy := coordinationv1.CoordinatedLeaseStrategy(coordination.DefaultRevision)
		g.server.Put(&coordinationv1.Lease{ // an API server that keeps the strategy creates the lock
			ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "work"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(""), Strategy: &strategy},
		})
		stop := g.coordinate()
		time.Sleep(30 * time.Second)
		check("coordinated", a, "")
		stop()
		time.Sleep(time.Minute)
		g.watcher.Set("canary")
		check("without a coordinator, for less than three leases", a, "")
		time.Sleep(2 * time.Minute)
		check("without a coordinator", b, "the coordinator is absent")
		g.watcher.Set("stable")
		time.Sleep(time.Second)
		check("another default", a, "the coordinator is absent")
		defer g.coordinate()()
		time.Sleep(30 * time.Second)
		check("coordinated again", a, "")
		g.watcher.Set("canary")
		time.Sleep(30 * time.Second)
		check("coordinated again, another default", b, "")
		for _, words := range []string{"no coordinator chooses the leader", "coordinator chooses the leader again"} {
			if !strings.Contains(log.String(), words) {
				t.Errorf("not logged: %q", words)
			}
		}
	})
}
