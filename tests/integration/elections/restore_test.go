package elections

import (
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// patient leaves a leader enough cover for an API server that starts anew.
func patient(c *leaderelection.Config) {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 10*time.Second, 7*time.Second, time.Second
}

// TestStoreIsRestored puts etcd back to where an earlier leader stood, and to where there
// was no lock yet: all that followed is gone from the record, but not from the world.
func TestStoreIsRestored(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	var restored []*restoredElection
	for _, lock := range []leaderelection.LockType{leaderelection.ConfigMapLock, leaderelection.LeaseLock} {
		for _, later := range []bool{false, true} {
			restored = append(restored, &restoredElection{stage: newStageOn(t, c, lock), later: later})
		}
	}
	for _, e := range restored {
		e.prepare(t)
	}
	backup, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range restored {
		e.goOn(t)
	}
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	for _, e := range restored {
		e.check(t)
	}
}

// restoredElection is one whose past comes back: with a as its leader, or, later, without
// a lock.
type restoredElection struct {
	*stage
	a, b  *replica
	later bool
}

func (e *restoredElection) prepare(t *testing.T) {
	e.setDefault(t, "stable")
	e.a, e.b = e.ranked(t, "a", "stable", patient), e.ranked(t, "b", "canary", patient)
	if !e.later {
		e.enter(t)
	}
}

func (e *restoredElection) enter(t *testing.T) {
	e.a.start(t)
	eventually(t, "a leads", e.a.Live)
	e.b.start(t)
	eventually(t, "b follows", e.b.follows("a"))
}

// goOn is what the backup does not know of: b leads.
func (e *restoredElection) goOn(t *testing.T) {
	if e.later {
		e.enter(t)
	}
	e.setDefault(t, "canary")
	eventually(t, "b leads", e.b.Live)
}

// check: b ends its term by the first word that it hears of the store. Whoever leads next
// has settled, because the record that came back may be of somebody who acts.
//
// Who that is stays open: a watch of the default revision that survived the restart may be silent
// until the API server ends it, and candidates may rank by a default that the store has
// forgotten meanwhile.
func (e *restoredElection) check(t *testing.T) {
	t.Helper()
	eventually(t, "b's term ends", func() bool { return !e.b.Spans()[0].To.IsZero() })
	eventually(t, "somebody leads in a new term", func() bool {
		return len(e.a.Spans()) == 2 && e.a.Live() || len(e.b.Spans()) == 2 && e.b.Live()
	})
	next := leader(t, e.a, e.b)
	if !e.later && !strings.Contains(next.log.String(), "to=settling") {
		t.Errorf("%s leads without having settled", next.name)
	}
	lives.Apart(t, e.a, e.b)
}
