package k8sleaderelection_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// slowpath counts the slow path of client-go and of this project.
type slowpath struct{ atomic.Int32 }

func (s *slowpath) On(string)                {}
func (s *slowpath) Off(string)               {}
func (s *slowpath) SlowpathExercised(string) { s.Inc() }

type theirMetrics struct{ *slowpath }

func (m theirMetrics) NewLeaderMetric() clientgo.LeaderMetric { return m.slowpath }

type ourMetrics struct{ *slowpath }

func (m ourMetrics) NewLeaderMetric() le.LeaderMetric { return m.slowpath }

// client-go accepts one provider in a process.
var theirs = &slowpath{}

// A renewal that needs another attempt is one slow path, in client-go and here.
func TestSlowpath_AsInClientGo(t *testing.T) {
	ours := &slowpath{}
	clientgo.SetProvider(theirMetrics{theirs})
	le.SetProvider(ourMetrics{ours})
	t.Cleanup(func() { le.SetProvider(nil) })
	for name, c := range map[string]struct {
		count *slowpath
		start func(t *testing.T, lock *locktest.Lock) (run func(context.Context))
	}{
		"client-go": {theirs, func(t *testing.T, lock *locktest.Lock) func(context.Context) {
			elector, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name}, Client: lock.Client,
					LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
				},
				LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
				Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return elector.Run
		}},
		"elector": {ours, func(t *testing.T, lock *locktest.Lock) func(context.Context) {
			elector, err := le.NewLeaderElector(le.LeaderElectionConfig{
				Lock: lock.Lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, Clock: testClock(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return elector.Run
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			lock := locktest.NewStore(locktest.Lease).Lock("a", "")
			run := c.start(t, lock)
			c.count.Store(0)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); run(ctx) }()
			advance(3 * retry)
			if n := c.count.Load(); n != 0 || lock.Counts()[locktest.Update] < 2 {
				t.Errorf("%s: %d slow paths of renewals that succeeded", name, n)
			}
			lock.FailNext(locktest.Update, apiserver.Fault{Lose: apiserver.TheRequest})
			advance(5 * retry)
			stop()
			if <-ended; c.count.Load() != 1 {
				t.Errorf("%s: %d slow paths", name, c.count.Load())
			}
		})
	}
}
