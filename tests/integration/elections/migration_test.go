package elections

import (
	"fmt"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// An election moves from a ConfigMap to a Lease and back. Replicas of neighboring steps are candidates at the same time.
func TestMigration(t *testing.T) {
	t.Parallel()
	x := newFixture(t, leaderelection.LockTypeLease)
	steps := []func(*leaderelection.Config){
		func(c *leaderelection.Config) { c.Lock = leaderelection.LockTypeConfigMap },
		func(c *leaderelection.Config) {
			c.Predecessor = &leaderelection.Predecessor{Name: election, Lock: leaderelection.LockTypeConfigMap, Hold: true}
		},
		func(*leaderelection.Config) {},
	}
	var all []*candidate
	token := uint64(0)
	for i, step := range []int{0, 1, 1, 2, 2, 1, 1, 0} {
		next := x.candidate(fmt.Sprintf("replica-%d-of-step-%d", i, step+1), "stable", steps[step]).start(t)
		if i > 0 {
			last := all[i-1]
			harness.Until(t, next.name+" follows "+last.name, next.follows(last.name))
			last.Stop(t)
		}
		harness.Until(t, next.name+" leads", func() bool { return next.Live() && next.IsLeader() && next.Gate().Check() == nil })
		if now := next.Status().Term.Token; now <= token {
			t.Errorf("%s has token %d after %d", next.name, now, token)
		} else {
			token = now
		}
		all = append(all, next)
	}
	lives.Apart(t, all...)
}
