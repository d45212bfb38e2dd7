package fence

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// candidate runs an elector until quit, or the test's end.
func (s *stage) candidate(config *rest.Config, name, revision string, watcher revisions.DefaultWatcher, lease time.Duration) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	lock := leaderelection.ConfigMapLock
	if s.kind == fence.Lease {
		lock = leaderelection.LeaseLock
	}
	return s.runs(config, leaderelection.Config{
		Identity: name, ElectionID: election, Revision: revision, Lock: lock, DefaultWatcher: watcher,
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: lease / 6,
	})
}

func (s *stage) runs(config *rest.Config, c leaderelection.Config) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	c.Namespace, c.Logger = s.namespace, slog.New(slog.DiscardHandler)
	name := c.Identity
	le, err := leaderelection.New(cluster.ClientFor(s.t, config), c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := le.RunContext(ctx); err != nil {
			s.t.Errorf("candidate %s: %v", name, err)
		}
	}()
	quit = func() { cancel(); <-done }
	s.t.Cleanup(quit)
	return le, quit
}

// Electors go through acquiring, a handover with its request and nomination, and releases,
// with the lock guarded. The lease is longer than the test waits: only a handover is in time.
func TestFenceLetsElectorsPass(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		atA, atB := s.identity("a", account), s.identity("b", account)
		s.install(s.declaration())
		watcher := defaults.New("stable")
		eventually(t, "the fence refuses while there is no lock", func() bool { return fence.IsRefusal(s.write(cluster.ClientFor(t, atA).Kube())) })
		a, _ := s.candidate(atA, "a", "stable", watcher, 2*soon)
		eventually(t, "a leads", a.IsLeader)
		b, quitB := s.candidate(atB, "b", "canary", watcher, 2*soon)
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
		token := a.Status().Token
		if err := s.delete(s.admin); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a has made the lock anew", func() bool { now := a.Status(); return now.Leading && now.Token != token })
		if err := s.write(a.Client().Kube()); err != nil {
			t.Errorf("a's first write after the lock was deleted: %v", err)
		}
	})
}

// The leader and its writes go through an API server that stops, its successor through another one.
// What the stopped one held, and what is sent when it goes on, is judged by what it has seen.
func TestFenceOfAnElectionAcrossTwoAPIServers(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, cluster.Options{})
	second, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := stageOn(t, c, fence.Lease)
	atA, atB := s.identity("a", account), s.identity("b", account)
	atA.Host = second.URL()
	history := s.prepare()
	ungated := cluster.ClientFor(t, atA).Kube()
	eventually(t, "the fence refuses while there is no lock", func() bool { return fence.IsRefusal(s.write(ungated)) })
	a, _ := s.candidate(atA, "a", "stable", nil, 3*time.Second)
	eventually(t, "a leads", a.IsLeader)
	stop, seen := s.writeAs(ungated, "a")
	eventually(t, "a writes", func() bool { return history.by("a", 0) > 20 })
	b, _ := s.candidate(atB, "b", "stable", nil, 3*time.Second)
	eventually(t, "b follows", func() bool { id, _ := b.Leader(); return id == "a" })

	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b leads", b.IsLeader)
	if err := patchGuarded(t.Context(), b.Client().Kube(), s.namespace, "b", 0); err != nil {
		t.Errorf("b's first write: %v", err)
	}
	token, err := strconv.ParseUint(b.Status().Token, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	resumed := time.Now()
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server that was stopped refuses a", func() bool { return fence.IsRefusal(s.write(ungated)) })
	seen.refused.Store(true)
	caught := time.Since(resumed)
	slipped := history.by("a", token)
	eventually(t, "a knows", func() bool { return !a.IsLeader() && a.Status().Holder == "b" })
	// What was on its way when its server refused may still be stored, and is not known of at once.
	eventually(t, "each writer has sent one since", func() bool { return seen.writers() == writers })
	s.known(history)
	settled := history.by("a", token)
	lapse(t, 200*time.Millisecond)
	stop()
	s.known(history)
	if more := history.by("a", token); more > settled {
		t.Errorf("%d further writes of a were admitted after its server had caught up", more-settled)
	}
	if n, tried := seen.admitted.Load(), seen.tried.Load(); n > 0 || tried == 0 {
		t.Errorf("of %d writes of a that were sent after its server had refused one, %d were admitted", tried, n)
	}
	t.Logf("figure: the server of a former leader was stopped over a takeover: %d of its writes without a gate slipped through until it refused, %v after it went on (%d at last)",
		slipped, caught.Round(time.Millisecond), settled)
}

func patchGuarded(ctx context.Context, as kubernetes.Interface, namespace, pod string, n int) error {
	body, err := json.Marshal(corev1.ConfigMap{Data: map[string]string{"pod": pod, "n": strconv.Itoa(n)}})
	if err != nil {
		return err
	}
	_, err = as.CoreV1().ConfigMaps(namespace).Patch(ctx, guarded, mergePatch, body, metav1.PatchOptions{})
	return err
}

// afterRefusal counts writes that were sent after one was refused.
type afterRefusal struct {
	refused         atomic.Bool // set by the test
	tried, admitted atomic.Int64
	by              [writers]atomic.Bool // who has sent such a write, and had its answer
}

func (a *afterRefusal) writers() (n int) {
	for i := range a.by {
		if a.by[i].Load() {
			n++
		}
	}
	return n
}

// known waits until the history has the version that is stored now.
func (s *stage) known(h *history) {
	s.t.Helper()
	now, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), guarded, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the history has the stored version", func() bool {
		return slices.ContainsFunc(h.all(), func(v version) bool { return strconv.FormatUint(v.number, 10) == now.ResourceVersion })
	})
}

// writeAs writes without a pause and whatever comes of it, until stop.
func (s *stage) writeAs(as kubernetes.Interface, pod string) (stop func(), seen *afterRefusal) {
	seen = &afterRefusal{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				late := seen.refused.Load()
				err := patchGuarded(ctx, as, s.namespace, pod, n)
				if late && ctx.Err() == nil {
					seen.tried.Add(1)
					seen.by[i].Store(true)
				}
				if err == nil && late {
					seen.admitted.Add(1)
				}
				if err != nil {
					pause(ctx)
				}
			}
		})
	}
	stop = func() { cancel(); all.Wait() }
	s.t.Cleanup(stop)
	return stop, seen
}

// client-go's elector under the guard: it acquires, renews, releases, and another follows.
func TestFenceLetsClientGosElectorPass(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	atA, atB := s.identity("a", account), s.identity("b", account)
	a, b := cluster.ClientFor(t, atA).Kube(), cluster.ClientFor(t, atB).Kube()
	s.install(s.declaration())
	eventually(t, "the fence refuses while there is no lock", func() bool { return fence.IsRefusal(s.write(a)) })
	quitA := s.clientGo(a, "a")
	s.stands(a, b)
	renewed := s.renewals()
	eventually(t, "a has renewed", func() bool { return s.renewals() > renewed })
	s.clientGo(b, "b")
	quitA()
	s.stands(b, a)
}

// renewals is the lock's renew time, which the holder moves.
func (s *stage) renewals() int64 {
	s.t.Helper()
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return lease.Spec.RenewTime.UnixMicro()
}

// clientGo runs client-go's elector until quit, or the test's end.
func (s *stage) clientGo(as kubernetes.Interface, name string) (quit func()) {
	s.t.Helper()
	elector, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: election}, Client: as.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	quit = func() { cancel(); <-done }
	s.t.Cleanup(quit)
	return quit
}
