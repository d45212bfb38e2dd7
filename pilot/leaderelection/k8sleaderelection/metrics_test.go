package k8sleaderelection_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// calls records the calls of the metrics of client-go and of this project.
type calls struct {
	mu  sync.Mutex
	all []string
}

func (c *calls) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, call)
}

// take returns the calls since the last call, in order.
func (c *calls) take() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.all = nil }()
	return strings.Join(c.all, " ")
}

func (c *calls) On(string)                { c.add("on") }
func (c *calls) Off(string)               { c.add("off") }
func (c *calls) SlowpathExercised(string) { c.add("slow") }

type theirMetrics struct{ *calls }

func (m theirMetrics) NewLeaderMetric() clientgo.LeaderMetric { return m.calls }

type ourMetrics struct{ *calls }

func (m ourMetrics) NewLeaderMetric() le.LeaderMetric { return m.calls }

// client-go accepts one provider in a process.
var theirs = &calls{}

// The metrics are the metrics of client-go. A renewal that needs another attempt is one slow path.
func TestMetrics_AsInClientGo(t *testing.T) {
	ours := &calls{}
	clientgo.SetProvider(theirMetrics{theirs})
	le.SetProvider(ourMetrics{ours})
	t.Cleanup(func() { le.SetProvider(nil) })
	for name, c := range map[string]struct {
		calls *calls
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
			harness.Must(t, err)
			return elector.Run
		}},
		"elector": {ours, func(t *testing.T, lock *locktest.Lock) func(context.Context) {
			elector, err := le.NewLeaderElector(le.LeaderElectionConfig{
				Lock: lock.Lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, Clock: testClock(),
			})
			harness.Must(t, err)
			return elector.Run
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := locktest.NewStore(locktest.Lease)
			lock := store.Lock("a", "")
			putHolder(store, "other")
			run := c.start(t, lock)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); run(ctx) }()
			wants := func(when, want string) {
				t.Helper()
				if got := c.calls.take(); got != want {
					t.Errorf("%s, %s: %q, want %q", name, when, got, want)
				}
			}
			advance(3 * retry)
			wants("following", "off")
			putHolder(store, "")
			advance(4 * retry)
			wants("leading", "on")
			lock.FailNext(locktest.Update, apiserver.Fault{Lose: apiserver.TheRequest})
			advance(5 * retry)
			wants("after a failed renewal", "slow")
			putHolder(store, "other")
			advance(5 * retry)
			wants("after the loss", "off")
			stop()
			<-ended
			wants("at the end", "")
		})
	}
}
