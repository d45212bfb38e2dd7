package interop

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	istio "istio.io/istio/pilot/pkg/leaderelection/k8sleaderelection"
	istiolock "istio.io/istio/pilot/pkg/leaderelection/k8sleaderelection/k8sresourcelock"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// Known defects of electors, run with the real electors on an in-memory store in synctest. incumbent must not have
// them. Another elector must have each of them, or the case would prove nothing.

// subject is a candidate of the default revision.
type subject struct {
	name    string
	client  *locktest.Client
	mu      sync.Mutex
	live    int
	terms   int
	stopped time.Time
	cancel  context.CancelFunc
	ended   chan struct{}
}

func (s *subject) work(ctx context.Context) {
	s.mu.Lock()
	s.live++
	s.terms++
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
	s.stopped = time.Now()
}

func (s *subject) isLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live > 0
}

const (
	defectLease = 30 * time.Second
	defectRenew = 15 * time.Second
	defectRetry = 7500 * time.Millisecond
)

// enterSubject starts a candidate that has led for a minute and a second, so that it is between two renewals.
func enterSubject(t *testing.T, library electors.Library, store *locktest.Store) *subject {
	t.Helper()
	s := enterNamed(t, "a", library, store)
	if !s.isLive() {
		t.Fatalf("%v does not lead", library)
	}
	return s
}

func enterNamed(t *testing.T, name string, library electors.Library, store *locktest.Store) *subject {
	t.Helper()
	s := &subject{name: name, ended: make(chan struct{})}
	campaign := s.campaign(t, library, store)
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		campaign(ctx)
	}()
	t.Cleanup(func() {
		s.client.SetFault(nil)
		cancel()
		<-s.ended
		synctest.Wait()
	})
	pass(time.Minute + time.Second)
	return s
}

func (s *subject) campaign(t *testing.T, library electors.Library, store *locktest.Store) func(context.Context) {
	meta := metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name}
	switch library {
	case electors.Istio:
		s.client = store.Client(s.name)
		config := istio.LeaderElectionConfig{
			Lock:          &istiolock.LeaseLock{LeaseMeta: meta, Client: s.client, LockConfig: istiolock.ResourceLockConfig{Identity: s.name, Key: stable}},
			LeaseDuration: defectLease, RenewDeadline: defectRenew, RetryPeriod: defectRetry, ReleaseOnCancel: true,
			Callbacks: istio.LeaderCallbacks{OnStartedLeading: s.work, OnStoppedLeading: func() {}},
			// The comparison of istiod, for a default revision equal to this candidate's.
			KeyComparison: func(key string) bool { return key != stable },
		}
		return again(func(ctx context.Context) { istio.RunOrDie(ctx, config) })
	case electors.ClientGo:
		s.client = store.Client(s.name)
		config := clientgo.LeaderElectionConfig{
			Lock:          &resourcelock.LeaseLock{LeaseMeta: meta, Client: s.client, LockConfig: resourcelock.ResourceLockConfig{Identity: s.name}},
			LeaseDuration: defectLease, RenewDeadline: defectRenew, RetryPeriod: defectRetry, ReleaseOnCancel: true,
			Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: s.work, OnStoppedLeading: func() {}},
		}
		return again(func(ctx context.Context) { clientgo.RunOrDie(ctx, config) })
	default:
		lock := store.Lock(s.name, stable)
		s.client = lock.Client
		epoch := time.Now()
		elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
			Lock: lock.Locker, LeaseDuration: defectLease, RenewDeadline: defectRenew, RetryPeriod: defectRetry, ReleaseOnCancel: true,
			Logger: slog.New(slog.DiscardHandler), Ranked: true, DefaultRevision: func() k8sleaderelection.DefaultRevision {
				return k8sleaderelection.DefaultRevision{Synced: true, Revision: stable}
			},
			Clock:        k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) }),
			RunFunctions: []func(context.Context) error{func(ctx context.Context) error { s.work(ctx); return nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) {
			if err := elector.Campaign(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// again starts a new cycle after each term.
func again(cycle func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			cycle(ctx)
		}
	}
}

// pass advances the time and waits until the goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// stranger returns the record of a holder that does not exist.
func stranger() k8sresourcelock.LeaderElectionRecord {
	now := metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: "stranger", HolderKey: stable, LeaseDurationSeconds: 30, AcquireTime: now, RenewTime: now, LeaderTransitions: 1,
	}
}

// deaf mutes the watch, which the other electors do not have.
func (s *subject) deaf() { s.client.MuteWatches(true) }

// defects report whether a subject has the defect.
var defects = map[string]func(t *testing.T, s *subject, store *locktest.Store) bool{
	"a release clears the lease of a new holder": func(_ *testing.T, s *subject, store *locktest.Store) bool {
		s.deaf() // as after a pause
		store.Put("stranger", stranger())
		s.cancel()
		pass(time.Second)
		return store.Snapshot().Record.HolderIdentity != "stranger"
	},
	"a leader that has seen another holder runs until its deadline": func(_ *testing.T, s *subject, store *locktest.Store) bool {
		s.deaf()
		store.Put("stranger", stranger())
		pass(defectRetry + time.Second) // its renewal has shown the other holder
		return s.isLive()
	},
	"a late reply extends the time in which the leader runs": func(t *testing.T, s *subject, store *locktest.Store) bool {
		before := store.Snapshot().Record.RenewTime
		s.client.FailNext(locktest.Update, locktest.Fault{After: 12 * time.Second})
		for now := before; now.Equal(&before); now = store.Snapshot().Record.RenewTime {
			pass(10 * time.Millisecond)
		}
		stored := time.Now()
		pass(12*time.Second + 100*time.Millisecond)
		s.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		s.deaf()
		pass(time.Minute)
		if s.isLive() {
			t.Fatal("the leader never stops")
		}
		return s.stopped.Sub(stored) > defectLease
	},
	"losing and reacquiring the lock between two renewals counts as one term": func(_ *testing.T, s *subject, store *locktest.Store) bool {
		s.deaf()
		store.Put("stranger", stranger())
		released := stranger()
		released.HolderIdentity, released.HolderKey, released.LeaseDurationSeconds = "", "", 1
		store.Put("stranger", released)
		pass(2 * defectLease)
		return s.isLive() && s.terms == 1
	},
}

// A third party removes the annotation with the key of a Lease repeatedly. No key counts as no revision.
func TestMissingKey_NoPreemption(t *testing.T) {
	for library, steals := range map[electors.Library]bool{electors.Istio: true, electors.Incumbent: false} {
		t.Run(library.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := locktest.NewStore(locktest.Lease)
				one, other := enterSubject(t, library, store), enterNamed(t, "b", library, store)
				before := store.Snapshot().Record.LeaderTransitions
				for range 4 * int(defectLease/time.Second) {
					store.Annotate(k8sresourcelock.LeaseHolderKey, "")
					pass(time.Second)
				}
				moves := store.Snapshot().Record.LeaderTransitions - before
				t.Logf("the lock moved %d times in four leases", moves)
				if steals && moves < 4 {
					t.Error("the defect does not show: the case proves nothing")
				}
				if !steals && (moves != 0 || !one.isLive() || other.isLive()) {
					t.Errorf("the lock moved %d times; live: %v and %v", moves, one.isLive(), other.isLive())
				}
			})
		})
	}
}

func TestKnownDefects(t *testing.T) {
	for name, shows := range defects {
		t.Run(name, func(t *testing.T) {
			other := false
			for _, library := range electors.Libraries {
				shown := false
				synctest.Test(t, func(t *testing.T) {
					store := locktest.NewStore(locktest.Lease)
					shown = shows(t, enterSubject(t, library, store), store)
				})
				t.Logf("%v: %v", library, shown)
				if shown && library == electors.Incumbent {
					t.Error("incumbent has the defect")
				}
				other = other || shown
			}
			if !other {
				t.Error("no elector has the defect: the case proves nothing")
			}
		})
	}
}
