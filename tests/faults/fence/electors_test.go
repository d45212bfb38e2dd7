package fence

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// candidate runs an elector until quit, or the test's end.
func (s *stage) candidate(config *rest.Config, name, revision string, watcher revisions.DefaultWatcher, lease time.Duration) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	lock := leaderelection.LockTypeConfigMap
	if s.kind == fence.Lease {
		lock = leaderelection.LockTypeLease
	}
	return s.runs(config, leaderelection.Config{
		Identity: name, ElectionID: election, Revision: revision, Lock: lock, DefaultWatcher: watcher,
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: lease / 6,
	})
}

func (s *stage) runs(config *rest.Config, c leaderelection.Config) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	c.Namespace, c.Logger = s.namespace, slog.New(slog.DiscardHandler)
	name := c.Identity
	le, err := leaderelection.New(cluster.ClientFor(s.t, config), c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := le.RunContext(ctx); err != nil {
			s.t.Errorf("candidate %s: %v", name, err)
		}
	}()
	quit = func() { cancel(); <-done }
	s.t.Cleanup(quit)
	return le, quit
}

func TestFence_AdmitsElectors(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		atA, atB := s.identity("a", account), s.identity("b", account)
		s.install(s.declaration())
		watcher := defaults.New("stable")
		eventually(t, "the fence refuses while there is no lock", func() bool { return fence.IsRefusal(s.write(cluster.ClientFor(t, atA).Kube())) })
		a, _ := s.candidate(atA, "a", "stable", watcher, 2*soon)
		eventually(t, "a leads", a.IsLeader)
		b, quitB := s.candidate(atB, "b", "canary", watcher, 2*soon)
		eventually(t, "b follows", func() bool { id, _ := b.Leader(); return id == "a" })
		if err := s.write(a.Client().Kube()); err != nil {
			t.Errorf("a write of the leader: %v", err)
		}
		watcher.Set("canary")
		eventually(t, "b was handed the lock", b.IsLeader)
		if err := s.write(b.Client().Kube()); err != nil {
			t.Errorf("the new leader's first write, which the fence may be behind of: %v", err)
		}
		quitB()
		eventually(t, "a has followed a release", a.IsLeader)
		if err := s.write(a.Client().Kube()); err != nil {
			t.Errorf("a's first write in its second term: %v", err)
		}
		token := a.Status().Token
		if err := s.delete(s.admin); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a has recreated the lock", func() bool { now := a.Status(); return now.Leading && now.Token != token })
		if err := s.write(a.Client().Kube()); err != nil {
			t.Errorf("a's first write after the lock was deleted: %v", err)
		}
	})
}
