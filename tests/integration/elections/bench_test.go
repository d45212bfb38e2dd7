package elections

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// inFlight is how many elections of a benchmark run at once.
const inFlight = 8

// istioTiming is what istiod's elections use.
func istioTiming(c *leaderelection.Config) {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 0, 0, 0
}

// figures collects durations and prints how they are spread.
type figures struct {
	mu  sync.Mutex
	all []time.Duration
}

func (f *figures) add(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, d)
}

func (f *figures) report(b *testing.B, name string) {
	b.Helper()
	b.ReportMetric(f.at(0.5), name+"-median-ms")
	b.ReportMetric(f.at(0.99), name+"-p99-ms")
	b.ReportMetric(f.at(1), name+"-max-ms")
	b.ReportMetric(0, "ns/op")
}

// at is a quantile, in milliseconds.
func (f *figures) at(q float64) float64 {
	slices.Sort(f.all)
	return float64(f.all[int(q*float64(len(f.all)-1))].Microseconds()) / 1000
}

// share spreads b.N rounds over the elections in flight.
func share(b *testing.B, round func(worker, rounds int)) {
	var workers sync.WaitGroup
	for w := range inFlight {
		rounds := b.N / inFlight
		if w < b.N%inFlight {
			rounds++
		}
		if rounds > 0 {
			workers.Go(func() { round(w, rounds) })
		}
	}
	workers.Wait()
}

// newStages are one for each that goes on at once, with two identities.
func newStages(b *testing.B) []*stage {
	stages := make([]*stage, inFlight)
	for i := range stages {
		stages[i] = newStage(b, leaderelection.LeaseLock)
		stages[i].identity("a")
		stages[i].identity("b")
	}
	return stages
}

// BenchmarkGracefulStop measures from the return of a stopping leader's run function
// to the start of its successor's.
func BenchmarkGracefulStop(b *testing.B) {
	var gap figures
	stages := newStages(b)
	b.ResetTimer()
	share(b, func(w, rounds int) {
		s := stages[w]
		holder := s.enter("a", "stable", istioTiming)
		eventually(b, "a leads", holder.Live)
		for range rounds {
			name := map[string]string{"a": "b", "b": "a"}[holder.name]
			next := s.enter(name, "stable", istioTiming)
			eventually(b, "the next one follows", func() bool { id, _ := next.Leader(); return id == holder.name })
			if err := holder.Quit(); err != nil {
				b.Error(err)
			}
			eventually(b, "the next one leads", next.Live)
			gap.add(next.Last().From.Sub(holder.Last().To))
			holder = next
		}
	})
	gap.report(b, "beyond-drain")
}

// BenchmarkLimit is what a graceful stop cannot do without: a write, its watch event at
// another client, and that one's write; with nothing around them.
func BenchmarkLimit(b *testing.B) {
	var gap figures
	stages := newStages(b)
	b.ResetTimer()
	share(b, func(w, rounds int) {
		from, to := stages[w].rawLock("a"), stages[w].rawLock("b")
		seen := make(chan k8sresourcelock.Snapshot)
		ctx, cancel := context.WithCancel(b.Context())
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		up := make(chan struct{})
		watching.Go(func() {
			_, err := to.Watch(ctx, "", func() { close(up) }, func(s k8sresourcelock.Snapshot) {
				select {
				case seen <- s:
				case <-ctx.Done():
				}
			})
			if err != nil {
				b.Error(err)
			}
		})
		<-up
		record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 30}
		write := func(lock *k8sresourcelock.LeaseLock, base k8sresourcelock.Snapshot) k8sresourcelock.Snapshot {
			record.LeaderTransitions++
			snap, err := lock.Write(b.Context(), base, record, nil)
			if err != nil {
				b.Error(err)
			}
			return snap
		}
		base := write(from, k8sresourcelock.Snapshot{})
		<-seen
		for range rounds {
			began := time.Now()
			write(from, base)
			base = write(to, <-seen)
			gap.add(time.Since(began))
			<-seen
		}
	})
	gap.report(b, "limit")
}

// rawLock is a lock that no elector uses.
func (s *stage) rawLock(name string) *k8sresourcelock.LeaseLock {
	client, err := kube.NewClient(k8sresourcelock.ClientConfig(s.identity(name)), kube.WithOwnConnections())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return &k8sresourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: election}, Client: client.Kube().CoordinationV1(),
		LockConfig: k8sresourcelock.ResourceLockConfig{Identity: name},
	}
}

// BenchmarkCrash measures how long after the end of the lease, counted from when the
// last renewal was seen, a successor starts.
func BenchmarkCrash(b *testing.B) {
	var late figures
	stages := make([]*stage, inFlight)
	for i := range stages {
		stages[i] = newStage(b, leaderelection.LeaseLock)
	}
	b.ResetTimer()
	share(b, func(w, rounds int) {
		s := stages[w]
		renewals := s.watchRenewals(b)
		defer renewals.stop()
		for i := range rounds {
			leader := s.enter(fmt.Sprintf("a%d", i), "stable", istioTiming)
			eventually(b, "a leads", leader.Live)
			next := s.enter(fmt.Sprintf("b%d", i), "stable", istioTiming)
			eventually(b, "b follows", func() bool { id, _ := next.Leader(); return id == leader.name })
			leader.wire.setCut(true)
			started := s.waitFor(b, next)
			late.add(started.Sub(renewals.last(leader.name).Add(leaderelection.DefaultLeaseDuration)))
			leader.wire.setCut(false)
			if err := leader.Quit(); err != nil {
				b.Error(err)
			}
			if err := next.Quit(); err != nil {
				b.Error(err)
			}
		}
	})
	late.report(b, "after-expiry")
}

// renewals notes when a watch showed each holder's newest record, which is when the
// candidates saw it.
type renewals struct {
	w     watch.Interface
	ended sync.WaitGroup
	mu    sync.Mutex
	seen  map[string]time.Time
}

func (s *stage) watchRenewals(b *testing.B) *renewals {
	w, err := s.cluster.Client(b).Kube().CoordinationV1().Leases(s.namespace).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r := &renewals{w: w, seen: map[string]time.Time{}}
	r.ended.Go(func() {
		for event := range w.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok && lease.Spec.HolderIdentity != nil {
				r.mu.Lock()
				r.seen[*lease.Spec.HolderIdentity] = time.Now()
				r.mu.Unlock()
			}
		}
	})
	return r
}

func (r *renewals) last(holder string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[holder]
}

func (r *renewals) stop() {
	r.w.Stop()
	r.ended.Wait()
}

// waitFor waits for a lease and more.
func (s *stage) waitFor(b *testing.B, r *replica) time.Time {
	b.Helper()
	deadline := time.After(2 * leaderelection.DefaultLeaseDuration)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !r.Live() {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatal("no successor")
		}
	}
	return r.Last().From
}

// BenchmarkRequests counts what a leader and a follower with its watch up send in a
// minute.
func BenchmarkRequests(b *testing.B) {
	s := newStage(b, leaderelection.LeaseLock)
	leader := s.enter("a", "stable", istioTiming)
	eventually(b, "a leads", leader.Live)
	follower := s.enter("b", "stable", istioTiming)
	eventually(b, "b follows", func() bool { id, _ := follower.Leader(); return id == "a" })
	for range b.N {
		settled := time.NewTimer(time.Second)
		<-settled.C
		leads, follows := leader.wire.total(), follower.wire.total()
		minute := time.NewTimer(time.Minute)
		<-minute.C
		b.ReportMetric(float64(leader.wire.total()-leads), "leader-requests/min")
		b.ReportMetric(float64(follower.wire.total()-follows), "follower-requests/min")
	}
	b.ReportMetric(0, "ns/op")
}
