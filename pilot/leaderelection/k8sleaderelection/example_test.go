package k8sleaderelection_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
)

// The configuration has the fields of client-go. The lock is released after OnStartedLeading has returned.
func ExampleLeaderElector() {
	server := locktest.NewStore(locktest.Lease) // in production: a LeaseLock with Client: clientset.CoordinationV1()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
		Name: "my-controller", Lock: server.Lock("pod-a", ""),
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: k8sleaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading; the lock names", server.Snapshot().Record.HolderIdentity)
				stop() // for example on SIGTERM
				<-ctx.Done()
				fmt.Println("done; the lock still names", server.Snapshot().Record.HolderIdentity)
			},
			OnStoppedLeading: func() { fmt.Println("stopped") },
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	elector.Run(ctx)
	fmt.Printf("released: %t\n", server.Snapshot().Record.HolderIdentity == "")
	// Output:
	// leading; the lock names pod-a
	// done; the lock still names pod-a
	// stopped
	// released: true
}

// gauges is a metrics provider. A Prometheus provider sets a GaugeVec with the label name instead.
type gauges struct{}

func (gauges) NewLeaderMetric() k8sleaderelection.SwitchMetric { return gauges{} }

func (gauges) On(name string)  { fmt.Printf("leader{name=%q} 1\n", name) }
func (gauges) Off(name string) { fmt.Printf("leader{name=%q} 0\n", name) }

// The metric is on while the process leads. Set the provider before you create the first elector.
func ExampleSetProvider() {
	k8sleaderelection.SetProvider(gauges{})
	defer k8sleaderelection.SetProvider(nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	k8sleaderelection.RunOrDie(ctx, k8sleaderelection.LeaderElectionConfig{
		Name: "my-controller", Lock: locktest.NewStore(locktest.Lease).Lock("pod-a", ""),
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: k8sleaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { stop() },
			OnStoppedLeading: func() {},
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	// Output:
	// leader{name="my-controller"} 0
	// leader{name="my-controller"} 1
	// leader{name="my-controller"} 0
}

// An operator transfers the lock: the leader drains and writes the other replica as holder.
func ExampleOperator_Transfer() {
	server := locktest.NewStore(locktest.Lease)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	leads := make(chan string)
	ended := make(chan struct{})
	candidate := func(identity string) {
		defer func() { ended <- struct{}{} }()
		elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
			Name: "my-controller", Lock: server.Lock(identity, ""),
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: k8sleaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { leads <- identity; <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for ctx.Err() == nil {
			elector.Run(ctx) // one term
		}
	}
	go candidate("pod-a")
	fmt.Println(<-leads, "leads")
	operator := admin.Operator{Lock: server.Lock("jane", ""), Requester: "jane"}
	go candidate("pod-b")

	done := make(chan error, 1)
	go func() { done <- operator.Transfer(ctx, "pod-b", "", "node drain", time.Minute) }()
	fmt.Println(<-leads, "leads")
	fmt.Println("transferred:", <-done)

	stop()
	<-ended
	<-ended
	// Output:
	// pod-a leads
	// pod-b leads
	// transferred: <nil>
}

// tracer records a span per term. It shows the calls of an OpenTelemetry tracer in comments, because this module does not
// depend on it.
type tracer struct {
	began time.Time
	span  []string
}

func (t *tracer) Term(name string, began bool, reason string) {
	if began {
		t.began = time.Now() // _, span = tracer.Start(ctx, "lead "+name)
		t.span = []string{"lead " + name, "claim=" + reason}
		return
	}
	t.span = append(t.span, "end="+reason) // span.SetAttributes(attribute.String("end", reason))
	fmt.Println(strings.Join(t.span, " "), "took time:", time.Since(t.began) > 0)
	t.span = nil // span.End()
}

func (t *tracer) Phase(_, from, to, _ string) {
	if t.span != nil {
		t.span = append(t.span, from+"→"+to) // span.AddEvent(…)
	}
}

func (t *tracer) Call(_, verb, _, result string, _ time.Duration) {
	if t.span != nil && result != "ok" {
		t.span = append(t.span, verb+" "+result) // span.AddEvent(…)
	}
}

func (*tracer) StatusChanged(string) {}

func (t *tracer) ObserveDuration(name string, what k8sleaderelection.Interval, took time.Duration) {
	if what == k8sleaderelection.Drain { // tracer.Start(ctx, "drain "+name, trace.WithTimestamp(time.Now().Add(-took))), and its End()
		fmt.Println("drain", name, "took time:", took > 0)
	}
}

// An observer can trace each term.
func ExampleObserver() {
	server := locktest.NewStore(locktest.Lease)
	for range 2 {
		ctx, stop := context.WithCancel(context.Background())
		elector, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
			Name: "my-controller", Lock: server.Lock("pod-a", ""), Observer: &tracer{}, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: k8sleaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { stop(); <-ctx.Done() }, OnStoppedLeading: func() {},
			},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		elector.Run(ctx)
		stop()
	}
	// Output:
	// lead my-controller claim=lock-absent leading→draining end=stopped took time: true
	// drain my-controller took time: true
	// lead my-controller claim=lock-free leading→draining end=stopped took time: true
	// drain my-controller took time: true
}
