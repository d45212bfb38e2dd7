package elections

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// many is how many elections BenchmarkThousandElections has in one process.
const many = 1000

// BenchmarkThousandElections measures what an election costs in a process that takes
// part in very many, as leader of all and as follower of all: memory, goroutines and
// requests. Each has the timing that istiod's have, a rank, a gate and a run function. They
// run as one Set.
//
//   - KiB/election is what it keeps: heap and stacks after garbage collections, the run
//     function's own stack included; heap-KiB/election is the heap alone.
//   - stacks-KiB/election is what stacks took before them, after work had grown them;
//     it counts the stacks alone.
//   - requests/period counts what each election sent in a RetryPeriod.
func BenchmarkThousandElections(b *testing.B) {
	for _, way := range []struct {
		name string
		lock leaderelection.LockType
	}{{"lease", leaderelection.LeaseLock}, {"configmap", leaderelection.ConfigMapLock}} {
		for _, leads := range []bool{true, false} {
			role := map[bool]string{true: "leader", false: "follower"}[leads]
			b.Run(way.name+"/"+role, func(b *testing.B) {
				for range b.N {
					newCrowd(b, way.lock).measure(leads)
				}
			})
		}
	}
}

// crowd is the many elections of one process.
type crowd struct {
	*testing.B
	*stage
	wire    *wire
	client  kube.Client
	watcher revisions.DefaultWatcher
	all     []*leaderelection.LeaderElection
	ctx     context.Context
	running sync.WaitGroup
	live    atomic.Int64 // run functions that are alive
}

func newCrowd(b *testing.B, lock leaderelection.LockType) *crowd {
	c := &crowd{B: b, stage: newStage(b, lock), wire: &wire{requests: map[string]int{}}}
	config := c.cluster.Identity(b, cluster.IdentityOptions{
		Namespace: c.namespace, PodName: "crowd", ServiceAccount: "crowd", ClusterRules: webhookRights(),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"},
			Verbs: []string{"create", "get", "update", "watch"},
		}},
	})
	config.Wrap(c.wire.wrap)
	client := cluster.ClientFor(b, config)
	c.client = client
	c.watcher = revisions.NewDefaultWatcher(client, "stable", "istio-system")
	c.during(func(ctx context.Context) { c.watcher.Run(ctx.Done()) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	c.ctx = ctx
	b.Cleanup(func() {
		cancel()
		c.running.Wait()
	})
	eventually(b, "the default revision is known", c.watcher.HasSynced)
	return c
}

// during runs f until the benchmark ends, and waits for it then.
func (c *crowd) during(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.B.Context()))
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	c.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func lockOf(i int) string { return fmt.Sprintf("election-%04d", i) }

func (c *crowd) measure(leads bool) {
	if !leads {
		c.holdAll()
	}
	c.all = make([]*leaderelection.LeaderElection, 0, many+1)
	// One comes first, opens the connection and pays for what all share.
	c.enter(0, 1)
	c.settle(leads)
	before := usage()
	c.enter(1, many)
	c.settle(leads)
	c.pass(2 * leaderelection.DefaultRetryPeriod)
	sent := c.wire.total()
	const periods = 4
	c.pass(periods * leaderelection.DefaultRetryPeriod)
	sent = c.wire.total() - sent
	after := usage()
	c.ReportMetric((after.memory()-before.memory())/many, "KiB/election")
	c.ReportMetric((after.heap-before.heap)/many, "heap-KiB/election")
	c.ReportMetric((after.grown-before.grown)/many, "stacks-KiB/election")
	c.ReportMetric(float64(after.goroutines-before.goroutines)/many, "goroutines/election")
	c.ReportMetric(float64(sent)/many/periods, "requests/period")
	c.ReportMetric(0, "ns/op")
}

// settle waits until all that have entered lead, or know who does.
func (c *crowd) settle(leads bool) {
	settled := func() (n int) {
		if leads {
			return int(c.live.Load())
		}
		for _, l := range c.all {
			if l.Status().Holder == "another" {
				n++
			}
		}
		return n
	}
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for settled() < len(c.all) {
		select {
		case <-tick.C:
		case <-patience.C:
			c.B.Fatalf("%d of %d", settled(), len(c.all))
		}
	}
}

// pass lets a time go by in which elections do what they do.
func (c *crowd) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.B.Context().Done():
	}
}

// enter takes part in count more elections.
func (c *crowd) enter(from, count int) {
	set := leaderelection.NewSet()
	for i := range count {
		l := c.join(from + i)
		c.all = append(c.all, l)
		set.Add(l)
	}
	c.running.Go(func() {
		if err := set.RunContext(c.ctx); err != nil {
			c.Error(err)
		}
	})
}

func (c *crowd) join(i int) *leaderelection.LeaderElection {
	l, err := leaderelection.New(c.client, leaderelection.Config{
		Namespace: c.namespace, Identity: "crowd", ElectionID: lockOf(i), Revision: "stable", Lock: c.lock,
		DefaultWatcher: c.watcher, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.Fatal(err)
	}
	return l.AddRunContext(func(ctx context.Context) error {
		c.live.Add(1)
		<-ctx.Done()
		return nil
	})
}

// holdAll has another hold all locks, which renews them and is no elector.
func (c *crowd) holdAll() {
	client, err := kube.NewClient(k8sresourcelock.ClientConfig(c.cluster.Admin()), kube.WithOwnConnections())
	if err != nil {
		c.B.Fatal(err)
	}
	c.Cleanup(func() { kube.CloseIdleConnections(client) })
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "another", HolderKey: "stable", LeaseDurationSeconds: 30}
	locks := make([]k8sresourcelock.Versioned, many+1)
	held := make([]k8sresourcelock.Snapshot, many+1)
	renew := func(ctx context.Context, i int) {
		record.RenewTime = metav1.NewTime(record.RenewTime.Add(time.Second))
		snap, err := locks[i].Write(ctx, held[i], record, nil)
		if err != nil && ctx.Err() == nil {
			c.Error(err)
		}
		held[i] = snap
	}
	for i := range locks {
		meta, who := metav1.ObjectMeta{Namespace: c.namespace, Name: lockOf(i)}, k8sresourcelock.ResourceLockConfig{Identity: "another"}
		locks[i] = &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.Kube().CoreV1(), LockConfig: who}
		if c.lock == leaderelection.LeaseLock {
			locks[i] = &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.Kube().CoordinationV1(), LockConfig: who}
		}
		renew(c.B.Context(), i)
	}
	c.during(func(ctx context.Context) {
		tick := time.NewTicker(leaderelection.DefaultRetryPeriod / (many + 1))
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

// used is what the process uses.
type used struct {
	heap, stack, grown float64 // KiB
	goroutines         int
}

func (u used) memory() float64 { return u.heap + u.stack }

func usage() used {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	grown := float64(m.StackInuse) / 1024
	for range 4 { // each collection halves a stack that is little used
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return used{
		heap: float64(m.HeapAlloc) / 1024, stack: float64(m.StackInuse) / 1024, grown: grown,
		goroutines: runtime.NumGoroutine(),
	}
}
