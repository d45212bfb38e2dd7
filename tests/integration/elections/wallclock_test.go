package elections

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// frozen is a replica whose wall clock stands still.
type frozen struct {
	*k8sleaderelection.LeaderElector
	lives           chan string // "works" and "has stopped", in order
	defaultRevision atomic.Pointer[string]
}

// flips makes that revision the default.
func (f *frozen) flips(revision string) {
	f.defaultRevision.Store(&revision)
	f.Refresh()
}

// frozen makes one and runs it until the test ends.
func (s *stage) frozen(name, revision string, at time.Time) *frozen {
	s.t.Helper()
	client, err := kube.NewClient(k8sresourcelock.ClientConfig(s.identity(name)), kube.WithOwnConnections())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: election}
	who := k8sresourcelock.ResourceLockConfig{Identity: name, Key: revision}
	var lock k8sresourcelock.Interface = &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.Kube().CoreV1(), LockConfig: who}
	if s.lock == leaderelection.LeaseLock {
		lock = &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.Kube().CoordinationV1(), LockConfig: who}
	}
	f := &frozen{lives: make(chan string, 8)}
	f.defaultRevision.Store(new("stable"))
	log := &logs.Buffer{}
	f.LeaderElector, err = k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: briskLease, RenewDeadline: 4 * time.Second, RetryPeriod: 750 * time.Millisecond,
		ReleaseOnCancel: true, Ranked: true, Name: election,
		Clock:  k8sleaderelection.NewClock(nil).WithWall(func() int64 { return at.UnixNano() }),
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(log), nil)),
		DefaultRevision: func() k8sleaderelection.DefaultRevision {
			return k8sleaderelection.DefaultRevision{Synced: true, Revision: *f.defaultRevision.Load()}
		},
		RunFunctions: []func(context.Context) error{func(ctx context.Context) error {
			f.lives <- "works"
			<-ctx.Done()
			f.lives <- "has stopped"
			return nil
		}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f.Campaign(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("replica %s: %v", name, err)
		}
		if s.t.Failed() {
			s.t.Logf("replica %s:\n%s", name, log.String())
		}
	})
	return f
}

// Wall clocks stand still, one an hour behind the other. Each renewal changes the record all
// the same, by a second; the leader leads on past its lease, hands over, and the next one's
// renewals change the record too.
func TestWallClockStandsStill(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		now := time.Now()
		a := s.frozen("a", "stable", now)
		c.await(t, "a 0, leads")
		began := time.Now()
		b := s.frozen("b", "canary", now.Add(-time.Hour))
		c.renewals(t, 3)
		eventually(t, "a lease has gone by", func() bool { return time.Since(began) > briskLease })
		a.flips("canary")
		b.flips("canary")
		c.await(t, "b 1, leads")
		c.renewals(t, 3)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		if len(a.lives) != 2 || len(b.lives) != 1 {
			t.Errorf("a tells %d things of its life, b %d; want 2 and 1", len(a.lives), len(b.lives))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, state := range c.states[1:] {
			before, after := c.states[i].Record, state.Record
			if changed := after != before; changed && !after.RenewTime.After(before.RenewTime.Time) {
				t.Errorf("renewed at %v, then at %v", before.RenewTime, after.RenewTime)
			}
		}
	})
}
