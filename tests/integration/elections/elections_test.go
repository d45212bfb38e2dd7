package elections

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestHandover(t *testing.T) {
	t.Parallel()
	x := newFixture(t, leaderelection.LockTypeConfigMap)
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
	x.setDefault("stable")
	eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 && a.Live() })
	for _, c := range []*candidate{a, b} {
		eventually(t, c.name+" was nominated", func() bool { return c.log.Count("claim=nominated") == 1 })
	}
	lives.Apart(t, a, b)
}
