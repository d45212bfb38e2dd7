package elections

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// etcd is restored from a backup: in one election of a time when an earlier leader held the lock, in the other of a
// time before the lock existed. The term of the current leader ends. If the restored record has a holder, the next
// leader settles, because that holder may be active.
func TestStoreRestored(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	type restored struct {
		*fixture
		a, b *candidate
	}
	// The validity is long enough for a restart of the API server.
	timing := func(c *leaderelection.Config) {
		c.LeaseDuration = 10 * time.Second
		c.RenewDeadline = 7 * time.Second
		c.RetryPeriod = time.Second
	}
	prepare := func(lock leaderelection.LockType) restored {
		x := newFixtureIn(t, c, lock)
		x.setDefault("stable")
		return restored{x, x.ranked("a", "stable", timing), x.ranked("b", "canary", timing)}
	}
	enter := func(r restored) {
		r.a.start(t)
		eventually(t, "a leads", r.a.Live)
		r.b.start(t)
		eventually(t, "b follows", r.b.follows("a"))
	}
	held := prepare(leaderelection.LockTypeConfigMap)
	absent := prepare(leaderelection.LockTypeLease)
	enter(held)
	backup, err := c.Backup()
	if err != nil {
		t.Fatal(err)
	}
	enter(absent)
	for _, r := range []restored{held, absent} {
		r.setDefault("canary")
		eventually(t, "b leads", r.b.Live)
	}
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	for _, r := range []restored{held, absent} {
		eventually(t, "the term of b ends", func() bool { return !r.b.Spans()[0].To.IsZero() })
		// Either can lead next: a watch of the default revision may still show the value before the restore.
		eventually(t, "a candidate leads in a new term", func() bool {
			return len(r.a.Spans()) == 2 && r.a.Live() || len(r.b.Spans()) == 2 && r.b.Live()
		})
		next := r.a
		if r.b.Live() {
			next = r.b
		}
		if r.lock == held.lock && next.log.Count("to=settling") == 0 {
			t.Errorf("%s leads and has not settled", next.name)
		}
		lives.Apart(t, r.a, r.b)
	}
}
