package fence

import (
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// run runs a candidate until quit or the end of the test.
func (s *stage) run(config *rest.Config, c leaderelection.Config) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	c.Namespace, c.Logger = s.namespace, slog.New(slog.DiscardHandler)
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = lease, lease/2, 2*time.Second
	le, err := leaderelection.New(cluster.ClientFor(s.t, config), c)
	harness.Must(s.t, err)
	return le, harness.Background(s.t, le.RunContext)
}

func TestFence_AdmitsElectors(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s := newStage(t, kind)
		atA, atB := s.identity("a", account), s.identity("b", account)
		s.install(s.declaration())
		watcher := defaults.New("stable")
		lock := map[record.Kind]leaderelection.LockType{record.ConfigMap: leaderelection.LockTypeConfigMap, record.Lease: leaderelection.LockTypeLease}[kind]
		enter := func(config *rest.Config, name, revision string) (*leaderelection.LeaderElection, func()) {
			return s.run(config, leaderelection.Config{Identity: name, ElectionID: election, Revision: revision, Lock: lock, DefaultWatcher: watcher})
		}
		eventually(t, "the fence refuses while there is no lock", func() bool { return fence.IsRefusal(s.write(cluster.ClientFor(t, atA).Kube())) })
		a, _ := enter(atA, "a", "stable")
		eventually(t, "a leads", a.IsLeader)
		b, quitB := enter(atB, "b", "canary")
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
		token := a.Status().Term.Token
		harness.Must(t, s.delete(s.admin))
		eventually(t, "a has recreated the lock", func() bool { now := a.Status(); return now.Leading && now.Term.Token != token })
		if err := s.write(a.Client().Kube()); err != nil {
			t.Errorf("a's first write after the lock was deleted: %v", err)
		}
	})
}
