package elections

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// Work that exhausts the rate limiter of the program's client does not cost the term: 200 goroutines wait about 40 s for each
// request, and the lease has 3 s.
func TestBusyClient_KeepsTerm(t *testing.T) {
	const lease, deadline, retry = 3 * time.Second, 2 * time.Second, 500 * time.Millisecond
	for name, run := range map[string]func(ctx context.Context, config *rest.Config, namespace string, work func(context.Context, kubernetes.Interface)) error{
		"lock of a clientset": func(ctx context.Context, config *rest.Config, namespace string, work func(context.Context, kubernetes.Interface)) error {
			set, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
				Lock: &k8sresourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: election}, Client: set.CoordinationV1(),
					LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "a"},
				},
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true,
				Callbacks: k8sleaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { work(ctx, set) }},
			})
			if err != nil {
				return err
			}
			return elector.Campaign(ctx)
		},
		"named election": func(ctx context.Context, config *rest.Config, namespace string, work func(context.Context, kubernetes.Interface)) error {
			client, err := kube.NewClient(config)
			if err != nil {
				return err
			}
			defer kube.CloseIdleConnections(client)
			named, err := leaderelection.New(client, leaderelection.Config{
				Namespace: namespace, ElectionID: election, Identity: "a",
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return err
			}
			named.AddRunContext(func(ctx context.Context) error {
				work(ctx, named.Client().Kube())
				return nil
			})
			return named.RunContext(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Shared(t).Namespace(t)
			config := rest.CopyConfig(cluster.Shared(t).Admin())
			config.QPS = 5
			config.Burst = 10
			var sent harness.Log
			config.Wrap(harness.Requests(&sent))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			terms := make(chan struct{}, 1)
			lost := make(chan struct{})
			work := func(term context.Context, set kubernetes.Interface) {
				terms <- struct{}{}
				var busy sync.WaitGroup
				for range 200 {
					busy.Go(func() {
						for term.Err() == nil {
							_, _ = set.CoreV1().ConfigMaps(namespace).Get(term, "object", metav1.GetOptions{})
						}
					})
				}
				busy.Wait()
				if ctx.Err() == nil {
					close(lost)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, config, namespace, work) }()
			<-terms
			harness.Until(t, "8 writes were sent", func() bool {
				select {
				case <-lost:
					t.Fatalf("the term was lost after %d writes", strings.Count(sent.String(), http.MethodPut))
				case err := <-ended:
					t.Fatal(err)
				default:
				}
				return strings.Count(sent.String(), http.MethodPut) >= 8
			})
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
