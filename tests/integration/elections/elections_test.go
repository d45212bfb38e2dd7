package elections

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestHandover(t *testing.T) {
	eachLock(t, func(t *testing.T, x *fixture) {
		h := x.history()
		x.setDefault("stable")
		a := x.ranked("a", "stable", patient).start(t)
		eventually(t, "a leads", a.Live)
		b := x.ranked("b", "canary", patient).start(t)
		eventually(t, "b follows", b.follows("a"))
		a.lingers.Store(true)
		x.setDefault("canary")
		eventually(t, "a drains", func() bool { return a.Live() && !a.Last().Told.IsZero() })
		if b.Live() || b.IsLeader() || !a.IsLeader() {
			t.Errorf("while a drains: a leads %v, b leads %v, b runs %v", a.IsLeader(), b.IsLeader(), b.Live())
		}
		a.lingers.Store(false)
		eventually(t, "b leads", b.Live)
		h.expect(handover("a", "b", 0)...)
		x.setDefault("stable")
		eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 && a.Live() })
		h.expect(append(handover("a", "b", 0), handover("b", "a", 1)[1:]...)...)
		lives.Apart(t, a, b)
	})
}

// Istio's constructors use its default revision, its lock types and its keys.
func TestConstructors(t *testing.T) {
	for name, test := range map[string]struct {
		make func(namespace string, client kube.Client) *leaderelection.LeaderElection
		lock leaderelection.LockType
		key  string
	}{
		"Lease": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaseLeaderElection(namespace, "pilot-1", election, "stable", client)
		}, leaderelection.LockTypeLease, "stable"},
		"multicluster, remote": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaderElectionMulticluster(namespace, "pilot-1", election, "stable", true, client)
		}, leaderelection.LockTypeConfigMap, "^stable"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, test.lock)
			x.system = "istio-system"
			x.setDefault("stable")
			h := x.history()
			c := x.candidate("pilot-1", "stable")
			tokens := make(chan uint64, 1)
			started := make(chan struct{})
			c.LeaderElection = test.make(x.namespace, c.client).
				AddRunFunction(func(stop <-chan struct{}) { close(started); <-stop }).
				AddRunContext(func(ctx context.Context) error {
					term, _ := k8sleaderelection.TermFromContext(ctx)
					tokens <- term.Token
					<-ctx.Done()
					return nil
				})
			run(t, func(ctx context.Context) { c.Run(ctx.Done()) })
			<-started
			if token := <-tokens; token == 0 || fmt.Sprint(token) != fmt.Sprint(c.Status().Token) {
				t.Errorf("the run function has the token %d, the status %v", token, c.Status().Token)
			}
			if holder, key := c.Leader(); !c.IsLeader() || holder != "pilot-1" || key != test.key {
				t.Errorf("leads %v, record %q %q", c.IsLeader(), holder, key)
			}
			eventually(t, "it can hand over", func() bool { return slices.Contains(h.steps(), "pilot-1 0, leads") })
		})
	}
}
