package fence

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// lateness collects how late things were.
type lateness struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *lateness) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

// at is a quantile; 1 is the largest.
func (l *lateness) at(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	slices.Sort(l.all)
	return l.all[min(len(l.all)-1, int(q*float64(len(l.all))))]
}

// report shows quantiles in milliseconds.
func (l *lateness) report(b *testing.B, what string) {
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		b.ReportMetric(l.at(q).Seconds()*1000, what+"-"+name+"-ms")
	}
}

func BenchmarkFenceFollowsTheLock(b *testing.B) {
	for _, rate := range []int{0, 1000} {
		b.Run(fmt.Sprintf("%d updates a second", rate), func(b *testing.B) {
			c := ownCluster(b, cluster.Options{})
			s := stageOn(b, c, fence.Lease)
			pods := map[string]kubernetes.Interface{"a": s.pod("a"), "b": s.pod("b")}
			s.put(record{holder: "a", transitions: 3})
			s.install(s.declaration())
			s.stands(pods["a"], pods["b"])
			churn := s.churn(rate)
			var stale, shutOut lateness
			slipped, sent := 0, 0
			old, now := "a", "b"
			handovers := 0
			for b.Loop() {
				handovers++
				s.handTo(now)
				changed := time.Now()
				late, n, tries := s.untilRefused(pods[old], changed)
				stale.add(late)
				slipped, sent = slipped+n, sent+tries
				shutOut.add(s.untilAdmitted(pods[now], changed))
				old, now = now, old
			}
			b.ReportMetric(float64(slipped)/float64(handovers), "stale-writes/handover")
			b.ReportMetric(float64(churn())/b.Elapsed().Seconds(), "updates/s")
			stale.report(b, "last-stale")
			shutOut.report(b, "leader-let-in")
		})
	}
}

// untilRefused writes without a pause until the fence rejects a write, and returns the time of the last write
// that was admitted had been sent.
func (s *stage) untilRefused(as kubernetes.Interface, since time.Time) (last time.Duration, slipped, tries int) {
	for {
		sent := time.Since(since)
		tries++
		err := s.write(as)
		if fence.IsRefusal(err) {
			return last, slipped, tries
		}
		if err != nil {
			s.t.Fatal(err)
		}
		last, slipped = sent, slipped+1
	}
}

func (s *stage) untilAdmitted(as kubernetes.Interface, since time.Time) time.Duration {
	for {
		err := s.write(as)
		if err == nil {
			return time.Since(since)
		}
		if !fence.IsRefusal(err) {
			s.t.Fatal(err)
		}
	}
}

// churn updates other locks at a rate, until the benchmark's end, and counts.
func (s *stage) churn(rate int) (count func() int) {
	if rate == 0 {
		return func() int { return 0 }
	}
	const lanes = 16
	ctx, stop := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for lane := range lanes {
		lease := record{holder: "x"}.lease()
		lease.Name = fmt.Sprintf("other-%d", lane)
		made, err := s.admin.CoordinationV1().Leases(s.namespace).Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		all.Go(func() {
			tick := time.NewTicker(time.Second * lanes / time.Duration(rate))
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case at := <-tick.C:
					made.Spec.RenewTime = &metav1.MicroTime{Time: at}
					next, err := s.admin.CoordinationV1().Leases(s.namespace).Update(ctx, made, metav1.UpdateOptions{})
					if err == nil {
						made = next
						mu.Lock()
						done++
						mu.Unlock()
					}
				}
			}
		})
	}
	s.t.Cleanup(func() { stop(); all.Wait() })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
}
