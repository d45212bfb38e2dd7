package elections

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// etcd is restored from a backup: in one election of a time when an earlier leader held the lock, in the other of a
// time before the lock existed. The term of the current leader ends, and a candidate leads in a new term.
func TestStoreRestored(t *testing.T) {
	t.Parallel()
	c := cluster.Own(t, cluster.Options{WithoutControllers: true})
	type restored struct {
		*fixture
		a, b *candidate
	}
	prepare := func(lock leaderelection.LockType) restored {
		x := newFixtureIn(t, c, lock)
		x.setDefault("stable")
		return restored{x, x.ranked("a", "stable"), x.ranked("b", "canary")}
	}
	enter := func(r restored) {
		r.a.start(t)
		harness.Until(t, "a leads", r.a.Live)
		r.b.start(t)
		harness.Until(t, "b follows", r.b.follows("a"))
	}
	held := prepare(leaderelection.LockTypeConfigMap)
	absent := prepare(leaderelection.LockTypeLease)
	enter(held)
	backup, err := c.Backup()
	harness.Must(t, err)
	enter(absent)
	for _, r := range []restored{held, absent} {
		r.setDefault("canary")
		harness.Until(t, "b leads", r.b.Live)
	}
	lost := time.Now()
	harness.Must(t, c.Restore(t.Context(), backup))
	for _, r := range []restored{held, absent} {
		// Either can lead next: a watch of the default revision may still show the value before the restore.
		harness.Until(t, "a candidate leads in a new term, and all earlier terms have ended", func() bool {
			earlier := func(s lives.Span) bool { return s.To.IsZero() && s.From.Before(lost) }
			return (r.a.Live() || r.b.Live()) && !earlier(r.a.Last()) && !earlier(r.b.Last())
		})
		lives.Apart(t, r.a, r.b)
	}
}
