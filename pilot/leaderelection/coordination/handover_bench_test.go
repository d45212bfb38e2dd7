package coordination_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const (
	benchLease = 15 * time.Second
	benchRenew = 10 * time.Second
	benchRetry = 2 * time.Second
)

// BenchmarkCoordinatedHandover measures the time until a better candidate leads: with the API server's coordinator for candidates of this module
// and of client-go, from the publication of an older emulation version, and with the coordinator of this module, from a change of the default revision.
func BenchmarkCoordinatedHandover(b *testing.B) {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	n := newFixture(b)
	n.coordinate()
	kinds := []struct {
		name string
		once func(round int) time.Duration
	}{{"incumbent", n.handOver}, {"client-go", n.clientGo}, {"default-revision", n.changeDefault}}
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			var took []time.Duration
			for range b.N {
				took = append(took, kind.once(len(took)))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/max")
			b.ReportMetric(0, "ns/op")
		})
	}
	if n.overlap.Load() > 0 {
		b.Error("two leaders at the same time")
	}
}

func withBenchTiming(emulation string) func(*k8sleaderelection.LeaderElectionConfig, *leasecandidate.Config) {
	return func(e *k8sleaderelection.LeaderElectionConfig, p *leasecandidate.Config) {
		e.LeaseDuration = benchLease
		e.RenewDeadline = benchRenew
		e.RetryPeriod = benchRetry
		if emulation != "" {
			p.Strategy = coordination.OldestEmulationVersion
			p.EmulationVersion = emulation
		}
	}
}

func (n *fixture) handOver(round int) time.Duration {
	lease := fmt.Sprintf("ours-%d", round)
	a := n.replica(lease, fmt.Sprint("a-", round), "stable", withBenchTiming("1.2.0"))
	n.await("a leads", lease, a.leads.Load)
	began := time.Now()
	b := n.replica(lease, fmt.Sprint("b-", round), "stable", withBenchTiming("1.1.0"))
	n.await("b leads", lease, b.leads.Load)
	defer a.stop()
	defer b.stop()
	return time.Duration(b.began.Load() - began.UnixNano())
}

func (n *fixture) changeDefault(round int) time.Duration {
	lease := fmt.Sprintf("flips-%d", round)
	n.setDefault("stable")
	a := n.replica(lease, fmt.Sprint("a-", round), "stable", withBenchTiming(""))
	n.await("a leads", lease, a.leads.Load)
	b := n.replica(lease, fmt.Sprint("b-", round), "canary", withBenchTiming(""))
	n.await("b is published", lease, func() bool {
		_, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Get(n.t.Context(), b.identity, metav1.GetOptions{})
		return err == nil
	})
	began := time.Now()
	n.setDefault("canary")
	n.await("b leads", lease, b.leads.Load)
	defer a.stop()
	defer b.stop()
	return time.Duration(b.began.Load() - began.UnixNano())
}

func (n *fixture) clientGo(round int) time.Duration {
	lease := fmt.Sprintf("client-go-%d", round)
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	start := func(name, emulation string) chan time.Time {
		leads := make(chan time.Time, 10)
		candidate, synced, err := leaderelection.NewCandidate(n.client, n.namespace, name, lease, "1.2.3", emulation, coordinationv1.OldestEmulationVersion)
		if err != nil {
			n.t.Fatal(err)
		}
		_ = synced
		running.Go(func() { candidate.Run(ctx) })
		running.Go(func() {
			for ctx.Err() == nil {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
					Lock: &resourcelock.LeaseLock{
						LeaseMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: lease}, Client: n.client.CoordinationV1(),
						LockConfig: resourcelock.ResourceLockConfig{Identity: name},
					},
					LeaseDuration: benchLease, RenewDeadline: benchRenew, RetryPeriod: benchRetry, ReleaseOnCancel: true, Coordinated: true, Name: name,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) { leads <- time.Now(); <-ctx.Done() },
						OnStoppedLeading: func() {},
					},
				})
			}
		})
		return leads
	}
	await := func(leads chan time.Time) time.Time {
		select {
		case at := <-leads:
			return at
		case <-time.After(2 * time.Minute):
			n.t.Fatal("the candidate of client-go does not lead")
			return time.Time{}
		}
	}
	await(start(fmt.Sprint("a-", lease), "1.2.0"))
	began := time.Now()
	return await(start(fmt.Sprint("b-", lease), "1.1.0")).Sub(began)
}
