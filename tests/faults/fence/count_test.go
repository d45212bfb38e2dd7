package fence

import (
	"fmt"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// At the end of the count of terms elector and guard have to agree on what follows: a take-over,
// a handover and a release have to pass there, and beyond, where a record can be brought by hand.
func TestFenceLetsElectorsPassAtTheEndOfTheCount(t *testing.T) {
	for _, c := range []struct {
		kind fence.LockKind
		from int
	}{
		{fence.Lease, 1<<31 - 2},
		{fence.Lease, 1<<31 - 1},
		{fence.ConfigMap, 1<<31 - 2},
		{fence.ConfigMap, 9_999_999_999},
	} {
		t.Run(fmt.Sprintf("%v from %d", c.kind, c.from), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.kind)
			atA, atB := s.identity("a", account), s.identity("b", account)
			s.put(record{transitions: c.from})
			s.install(s.declaration())
			eventually(t, "the fence refuses while nobody leads", func() bool { return fence.IsRefusal(s.write(cluster.ClientFor(t, atA).Kube())) })
			watcher := defaults.New("stable")
			a, _ := s.candidate(atA, "a", "stable", watcher, 2*soon)
			eventually(t, "a leads", a.IsLeader)
			b, quitB := s.candidate(atB, "b", "canary", watcher, 2*soon)
			eventually(t, "b follows", func() bool { id, _ := b.Leader(); return id == "a" })
			watcher.Set("canary")
			eventually(t, "b was handed the lock", b.IsLeader)
			if err := s.write(b.Client().Kube()); err != nil {
				t.Errorf("the new leader's write: %v", err)
			}
			quitB()
			eventually(t, "a has followed a release", a.IsLeader)
			if now := a.Status().Transitions; now < c.from {
				t.Errorf("the count went back from %d to %d", c.from, now)
			}
		})
	}
}
