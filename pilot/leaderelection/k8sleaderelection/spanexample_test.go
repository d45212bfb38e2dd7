package k8sleaderelection_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// tracer makes a span of each term. It stands in for OpenTelemetry, which this module does without: its span is a line of text, and
// beside each step is the call that a trace.Tracer wants there. Its methods are called from one goroutine.
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

// A span of each term, by an observer.
func ExampleTermObserver() {
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
