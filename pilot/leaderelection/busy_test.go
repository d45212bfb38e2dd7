package leaderelection

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// Work that exhausts the rate limiter of the program's client does not cost the term: 200 goroutines wait about 40 s for each
// request, and the lease has 3 s.
func TestBusyClient_KeepsTerm(t *testing.T) {
	const lease, deadline, retry = 3 * time.Second, 2 * time.Second, 500 * time.Millisecond
	type work = func(context.Context, kubernetes.Interface)
	for name, campaign := range map[string]func(t *testing.T, config *rest.Config, work work) (run func(context.Context) error){
		"lock of a clientset": func(t *testing.T, config *rest.Config, work work) func(context.Context) error {
			set := kubernetes.NewForConfigOrDie(config)
			elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
				Lock: &k8sresourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name}, Client: set.CoordinationV1(),
					LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "a"},
				},
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, Clock: bubbleClock(), Logger: slog.New(slog.DiscardHandler),
				Callbacks: k8sleaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { work(ctx, set) }},
			})
			harness.Must(t, err)
			return elector.Campaign
		},
		"named election": func(t *testing.T, config *rest.Config, work work) func(context.Context) error {
			client, err := kube.NewClient(config)
			harness.Must(t, err)
			named, err := New(client, Config{
				Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: "a", Clock: bubbleClock(),
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry, Logger: slog.New(slog.DiscardHandler),
			})
			harness.Must(t, err)
			named.AddRunContext(func(ctx context.Context) error {
				work(ctx, named.Client().Kube())
				return nil
			})
			return named.RunContext
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiserver.New()
				config := server.Config()
				config.QPS = 5
				config.Burst = 10
				var terms lives.Recorder
				run := campaign(t, config, func(term context.Context, set kubernetes.Interface) {
					_, ended := terms.Begin()
					defer ended()
					var busy sync.WaitGroup
					for range 200 {
						busy.Go(func() {
							for term.Err() == nil {
								_, _ = set.CoreV1().ConfigMaps(locktest.Namespace).Get(term, "object", metav1.GetOptions{})
							}
						})
					}
					busy.Wait()
				})
				var election lives.Process
				election.Start(t.Context(), run)
				passes(time.Minute)
				sent := server.Counts()
				if !terms.Live() || len(terms.Spans()) != 1 || sent["update"] < 100 || sent["get"] > 400 {
					t.Errorf("leads %v after %d terms and the requests %v", terms.Live(), len(terms.Spans()), sent)
				}
				if err := election.Quit(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
