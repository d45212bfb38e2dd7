package coordinated

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
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/pilot/leaderelection"
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
	w := newWorld(b)
	w.coordinate()
	kinds := []struct {
		name string
		once func(round int) time.Duration
	}{{"incumbent", w.handOver}, {"client-go", w.clientGo}, {"default-revision", w.changeDefault}}
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
}

// benchCandidate returns a candidate of an election that is not started.
func (w *world) benchCandidate(election string, round int, pod, revision string, change func(*leaderelection.Config)) *candidate {
	pod = fmt.Sprintf("%s-%s-%d", election, pod, round)
	return w.newCandidate(w.identity(pod, "pilot"), pod, revision, func(c *leaderelection.Config) {
		c.ElectionID = fmt.Sprintf("%s-%d", election, round)
		c.LeaseDuration = benchLease
		c.RenewDeadline = benchRenew
		c.RetryPeriod = benchRetry
		change(c)
	})
}

func (w *world) handOver(round int) time.Duration {
	a := w.benchCandidate("ours", round, "a", "stable", emulating("0.9.0"))
	b := w.benchCandidate("ours", round, "b", "stable", emulating("0.8.0"))
	w.run(a)
	w.await("a leads", a.leads.Load)
	began := time.Now()
	w.run(b)
	return w.tookOver(began, a, b)
}

func (w *world) changeDefault(round int) time.Duration {
	w.revision.Set("stable")
	a := w.benchCandidate("flips", round, "a", "stable", func(*leaderelection.Config) {})
	b := w.benchCandidate("flips", round, "b", "canary", func(*leaderelection.Config) {})
	w.run(a)
	w.await("a leads", a.leads.Load)
	w.run(b)
	w.await("b is published", func() bool {
		name := fmt.Sprintf("flips-b-%d.flips-%d", round, round)
		_, err := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home).Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil
	})
	began := time.Now()
	w.revision.Set("canary")
	return w.tookOver(began, a, b)
}

// tookOver returns the time until b leads, and stops both.
func (w *world) tookOver(began time.Time, a, b *candidate) time.Duration {
	w.await("b leads", b.leads.Load)
	defer a.stop()
	defer b.stop()
	return time.Duration(b.began.Load() - began.UnixNano())
}

func (w *world) clientGo(round int) time.Duration {
	lease := fmt.Sprintf("client-go-%d", round)
	client := w.admin().Kube()
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	start := func(name, emulation string) chan time.Time {
		leads := make(chan time.Time, 10)
		candidate, _, err := clientgo.NewCandidate(client, w.home, name, lease, "1.2.3", emulation, coordinationv1.OldestEmulationVersion)
		if err != nil {
			w.t.Fatal(err)
		}
		running.Go(func() { candidate.Run(ctx) })
		running.Go(func() {
			for ctx.Err() == nil {
				clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
					Lock: &resourcelock.LeaseLock{
						LeaseMeta: metav1.ObjectMeta{Namespace: w.home, Name: lease}, Client: client.CoordinationV1(),
						LockConfig: resourcelock.ResourceLockConfig{Identity: name},
					},
					LeaseDuration: benchLease, RenewDeadline: benchRenew, RetryPeriod: benchRetry, ReleaseOnCancel: true, Coordinated: true, Name: name,
					Callbacks: clientgo.LeaderCallbacks{
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
		case <-time.After(w.patience):
			w.t.Fatal("the candidate of client-go does not lead")
			return time.Time{}
		}
	}
	await(start(fmt.Sprint("a-", lease), "1.2.0"))
	began := time.Now()
	return await(start(fmt.Sprint("b-", lease), "1.1.0")).Sub(began)
}
