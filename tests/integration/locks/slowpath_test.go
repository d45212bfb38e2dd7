package locks

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// slowpath counts the slow path of client-go and of this project.
type slowpath struct{ atomic.Int32 }

func (s *slowpath) On(string)                {}
func (s *slowpath) Off(string)               {}
func (s *slowpath) SlowpathExercised(string) { s.Add(1) }

type theirMetrics struct{ *slowpath }

func (m theirMetrics) NewLeaderMetric() clientgo.LeaderMetric { return m.slowpath }

type ourMetrics struct{ *slowpath }

func (m ourMetrics) NewLeaderMetric() k8sleaderelection.LeaderMetric { return m.slowpath }

// failing loses the next write on demand, and counts the others.
type failing struct {
	http.RoundTripper
	next   atomic.Bool
	writes atomic.Int32
}

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut {
		if f.next.Swap(false) {
			return nil, errors.New("connection reset by the test")
		}
		f.writes.Add(1)
	}
	return f.RoundTripper.RoundTrip(req)
}

// A renewal that needs another attempt is one slow path, in client-go and here.
func TestSlowpath_AsInClientGo(t *testing.T) {
	theirs, ours := &slowpath{}, &slowpath{}
	clientgo.SetProvider(theirMetrics{theirs})
	k8sleaderelection.SetProvider(ourMetrics{ours})
	t.Cleanup(func() { k8sleaderelection.SetProvider(nil) })
	const lease, deadline, retry = 15 * time.Second, 10 * time.Second, 500 * time.Millisecond
	for name, c := range map[string]struct {
		count *slowpath
		run   func(ctx context.Context, set kubernetes.Interface, meta metav1.ObjectMeta) error
	}{
		"client-go": {theirs, func(ctx context.Context, set kubernetes.Interface, meta metav1.ObjectMeta) error {
			elector, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
				Lock:          &resourcelock.LeaseLock{LeaseMeta: meta, Client: set.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "a"}},
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry,
				Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
			})
			if err == nil {
				elector.Run(ctx)
			}
			return err
		}},
		"elector": {ours, func(ctx context.Context, set kubernetes.Interface, meta metav1.ObjectMeta) error {
			elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
				Lock:          &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: set.CoordinationV1(), LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "a"}},
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry,
			})
			if err == nil {
				elector.Run(ctx)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := cluster.Shared(t)
			config := shared.Admin()
			var transport *failing
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				transport = &failing{RoundTripper: next}
				return transport
			})
			set, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			meta := metav1.ObjectMeta{Namespace: shared.Namespace(t), Name: lockName}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- c.run(ctx, set, meta) }()
			renewed := func(n int32) {
				t.Helper()
				harness.Until(t, "the lock was renewed", func() bool { return transport.writes.Load() >= n })
			}
			renewed(2)
			if n := c.count.Load(); n != 0 {
				t.Errorf("%d slow paths of renewals that succeeded", n)
			}
			transport.next.Store(true)
			harness.Until(t, "a slow path was counted", func() bool { return c.count.Load() == 1 })
			renewed(transport.writes.Load() + 3)
			stop()
			if err := <-ended; err != nil || c.count.Load() != 1 {
				t.Errorf("%d slow paths, error %v", c.count.Load(), err)
			}
		})
	}
}
