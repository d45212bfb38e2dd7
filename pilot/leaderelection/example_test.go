package leaderelection_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// Controllers that must not run twice, each with an election of its own. A Set runs them as one: an election that ends
// with an error ends the others in order, so that no process runs without one of its elections.
func ExampleSet() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	client, err := kube.NewClient(&rest.Config{Host: "https://127.0.0.1:6443"})
	if err != nil {
		fmt.Println(err)
		return
	}
	watcher := revisions.NewDefaultWatcher(client, "stable", "istio-system") // to be run, too
	set := leaderelection.NewSet()
	for _, id := range []string{leaderelection.NamespaceController, leaderelection.IngressController} {
		election, err := leaderelection.New(client, leaderelection.Config{
			Namespace: "istio-system", ElectionID: id, Identity: "pod-a", Revision: "stable", DefaultWatcher: watcher,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		election.AddRunContext(func(ctx context.Context) error {
			// Writes through election.Client() are refused after this function has returned. Between the end of ctx and
			// that, they are admitted within the validity, for clean-up.
			<-ctx.Done()
			return nil
		})
		set.Add(election)
	}
	stop()                           // as SIGTERM would
	fmt.Println(set.RunContext(ctx)) // until ctx ends; releases the locks
	for _, election := range set.All() {
		fmt.Println(election.Status().Lock, election.IsLeader())
	}
	// Output:
	// <nil>
	// istio-namespace-controller-election false
	// istio-leader false
}

// New reports everything that is invalid in a Config. It sends no requests.
func ExampleNew() {
	client, err := kube.NewClient(&rest.Config{Host: "https://127.0.0.1:6443"})
	if err != nil {
		fmt.Println(err)
		return
	}
	config := leaderelection.Config{
		Namespace: "istio-system", ElectionID: "my-controller", Identity: "pod-a", Revision: "stable",
		LeaseDuration: 10 * time.Second, RenewDeadline: 15 * time.Second,
	}
	_, err = leaderelection.New(client, config)
	fmt.Println(err)

	config.RenewDeadline = 6 * time.Second
	config.RetryPeriod = 2 * time.Second
	election, err := leaderelection.New(client, config)
	fmt.Println(err, election.IsLeader())
	// Output:
	// election "my-controller" in namespace "istio-system": LeaseDuration 10s must be greater than RenewDeadline 15s: lengthen LeaseDuration
	// RenewDeadline 15s leaves no time to drain within LeaseDuration 10s with clocks off by 0.02: lengthen LeaseDuration, or shorten RenewDeadline (to less than 9.607s)
	// <nil> false
}
