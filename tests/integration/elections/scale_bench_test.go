package elections

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// thousand is the number of elections in BenchmarkThousandElections.
const thousand = 1000

// BenchmarkThousandElections measures the cost of an election in a process that takes part in a thousand, as the
// leader or a follower of all. Each has istiod's timing, a rank, a gate and a run function. They run as one Set.
//
//   - KiB/election: heap and stacks after garbage collection, the stack of the run function included
//   - heap-KiB/election: only the heap
//   - requests/period: requests of each election in a RetryPeriod
func BenchmarkThousandElections(b *testing.B) {
	for name, lock := range map[string]leaderelection.LockType{"lease": leaderelection.LockTypeLease, "configmap": leaderelection.LockTypeConfigMap} {
		b.Run(name+"/leader", func(b *testing.B) {
			for b.Loop() {
				newScale(b, lock).measure("process")
			}
		})
		b.Run(name+"/follower", func(b *testing.B) {
			for b.Loop() {
				s := newScale(b, lock)
				s.holdAll()
				s.measure("other")
			}
		})
	}
}

// scale is a process with many elections.
type scale struct {
	*fixture
	b         *testing.B
	transport *transport
	client    kube.Client
	watcher   revisions.DefaultWatcher
	all       []*leaderelection.LeaderElection
	leading   atomic.Int64
}

func newScale(b *testing.B, lock leaderelection.LockType) *scale {
	s := &scale{b: b, fixture: newFixture(b, lock), transport: newTransport()}
	config := s.cluster.Identity(b, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: "process", Rules: lockRules(nil, "create", "get", "update", "watch"), ClusterRules: tagRules(),
	})
	config.Wrap(s.transport.wrap)
	s.client = cluster.ClientFor(b, config)
	s.watcher = revisions.NewDefaultWatcher(s.client, "stable", "istio-system")
	run(b, func(ctx context.Context) { s.watcher.Run(ctx.Done()) })
	eventually(b, "the default revision has synced", s.watcher.HasSynced)
	return s
}

func (s *scale) measure(leader string) {
	// The first election opens the connection and creates everything that is shared.
	s.enter(0, 1)
	s.settle(leader)
	before := memory()
	s.enter(1, thousand)
	s.settle(leader)
	<-time.After(2 * leaderelection.DefaultRetryPeriod)
	sent := s.transport.sent("")
	const periods = 4
	<-time.After(periods * leaderelection.DefaultRetryPeriod)
	sent = s.transport.sent("") - sent
	after := memory()
	s.b.ReportMetric((after.heap+after.stacks-before.heap-before.stacks)/thousand, "KiB/election")
	s.b.ReportMetric((after.heap-before.heap)/thousand, "heap-KiB/election")
	s.b.ReportMetric(float64(after.goroutines-before.goroutines)/thousand, "goroutines/election")
	s.b.ReportMetric(float64(sent)/thousand/periods, "requests/period")
	s.b.ReportMetric(0, "ns/op")
}

// settle waits until all elections have that leader.
func (s *scale) settle(leader string) {
	done := func() bool {
		for _, l := range s.all {
			if l.Status().Holder != leader {
				return false
			}
		}
		return leader != "process" || int(s.leading.Load()) == len(s.all)
	}
	for deadline := time.Now().Add(2 * time.Minute); !done(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.b.Fatalf("not all elections have the leader %s", leader)
		}
	}
}

// enter takes part in more elections.
func (s *scale) enter(from, count int) {
	set := leaderelection.NewSet()
	for i := range count {
		l, err := leaderelection.New(s.client, leaderelection.Config{
			Namespace: s.namespace, Identity: "process", ElectionID: electionName(from + i), Revision: "stable", Lock: s.lock,
			DefaultWatcher: s.watcher, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			s.b.Fatal(err)
		}
		l.AddRunContext(func(ctx context.Context) error {
			s.leading.Add(1)
			<-ctx.Done()
			return nil
		})
		s.all = append(s.all, l)
		set.Add(l)
	}
	run(s.b, func(ctx context.Context) {
		if err := set.RunContext(ctx); err != nil {
			s.b.Error(err)
		}
	})
}

// holdAll makes another process hold and renew all locks, without an elector.
func (s *scale) holdAll() {
	client, err := kube.NewClient(k8sresourcelock.ClientConfig(s.cluster.Admin()), kube.WithOwnConnections())
	if err != nil {
		s.b.Fatal(err)
	}
	s.b.Cleanup(func() { kube.CloseIdleConnections(client) })
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "other", HolderKey: "stable", LeaseDurationSeconds: 30}
	locks := make([]k8sresourcelock.Versioned, thousand+1)
	held := make([]k8sresourcelock.Snapshot, thousand+1)
	renew := func(ctx context.Context, i int) {
		record.RenewTime = metav1.NewTime(record.RenewTime.Add(time.Second))
		held[i], err = locks[i].Write(ctx, held[i], record, nil)
		if err != nil && ctx.Err() == nil {
			s.b.Error(err)
		}
	}
	config := k8sresourcelock.ResourceLockConfig{Identity: "other"}
	for i := range locks {
		meta := metav1.ObjectMeta{Namespace: s.namespace, Name: electionName(i)}
		locks[i] = &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.Kube().CoreV1(), LockConfig: config}
		if s.lock == leaderelection.LockTypeLease {
			locks[i] = &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.Kube().CoordinationV1(), LockConfig: config}
		}
		renew(s.b.Context(), i)
	}
	run(s.b, func(ctx context.Context) {
		tick := time.NewTicker(leaderelection.DefaultRetryPeriod / (thousand + 1))
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % len(locks) {
			select {
			case <-tick.C:
				renew(ctx, i)
			case <-ctx.Done():
				return
			}
		}
	})
}

// usage is the resource usage of the process. Memory is in KiB.
type usage struct {
	heap, stacks float64
	goroutines   int
}

func memory() usage {
	for range 4 { // each collection halves a stack that is hardly used
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc) / 1024, float64(m.StackInuse) / 1024, runtime.NumGoroutine()}
}
