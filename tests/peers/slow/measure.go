package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/internal/testutil/lives"
	ours "incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

var discard = log.New(io.Discard, "", 0)

// lab has what the elections share.
type lab struct {
	ctx       context.Context
	admin     *rest.Config
	upstream  http.RoundTripper
	namespace string
	verbose   bool
}

// measure runs one election with one candidate.
func (l *lab) measure(r *row, name string) error {
	klog.SetLogger(logr.Discard())
	end, stop := context.WithCancel(l.ctx)
	defer stop()
	var term lives.Recorder
	leads := func(ctx context.Context) { // returns 3 s after the first term has begun
		for ctx.Err() == nil && len(term.Spans()) == 0 {
			wait(ctx, 50*time.Millisecond)
		}
		wait(ctx, 3*time.Second)
	}
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == r.scenario })
	config := rest.CopyConfig(l.admin)
	connections, err := scenarios[i].proxy(end, l, config, r.late, leads)
	if err != nil {
		return err
	}
	config.QPS = -1
	var sent atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &sent} })
	work := func(ctx context.Context) error {
		_, ended := term.Begin()
		defer ended()
		<-ctx.Done()
		return nil
	}
	start := map[string]func(context.Context, *row, *rest.Config, string, func(context.Context) error) (func(), error){
		"incumbent": l.incumbent, "client-go": l.clientGo,
	}[r.library]
	if start == nil {
		return fmt.Errorf("unknown library %q", r.library)
	}
	began := time.Now()
	ended, err := start(end, r, config, name, work)
	if err != nil {
		return err
	}
	wait(l.ctx, window)
	r.count(term.Spans(), began, time.Now())
	r.conns = connections()
	r.sent = int(sent.Load())
	stop()
	ended()
	return nil
}

// count sets the figures of a row.
func (r *row) count(spans lives.Spans, began, now time.Time) {
	r.first = -1
	for i, s := range spans {
		if i == 0 {
			r.first = s.From.Sub(began)
		}
		to := s.To
		if to.IsZero() {
			to = now
		} else {
			r.lost++
		}
		r.led += to.Sub(s.From)
	}
}

func (l *lab) incumbent(ctx context.Context, r *row, config *rest.Config, name string, work func(context.Context) error) (func(), error) {
	client, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	var logs lines
	le, err := ours.New(client, ours.Config{
		Namespace: l.namespace, Identity: "a", ElectionID: name, Revision: "stable", PerRevision: true, Lock: ours.LockTypeLease,
		LeaseDuration: r.lease, RenewDeadline: r.deadline, RetryPeriod: r.retry, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
	})
	if err != nil {
		return nil, err
	}
	le.AddRunContext(work)
	ended := make(chan error, 1)
	go func() { ended <- le.RunContext(ctx) }()
	return func() {
		r.said = logs.with("latency=")
		if err := <-ended; err != nil {
			fmt.Println(name, err)
		}
		kube.CloseIdleConnections(client)
		if l.verbose {
			fmt.Printf("%s %s %v:\n%s", r.scenario, r.settings.name, r.late, strings.Join(logs.with(""), "\n"))
		}
	}, nil
}

func (l *lab) clientGo(ctx context.Context, r *row, config *rest.Config, name string, work func(context.Context) error) (func(), error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name},
			Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
		},
		LeaseDuration: r.lease, RenewDeadline: r.deadline, RetryPeriod: r.retry,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { _ = work(ctx) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil { // after each term, as istiod does
			elector.Run(ctx)
		}
	})
	return running.Wait, nil
}

// counted counts requests.
type counted struct {
	next http.RoundTripper
	sent *atomic.Int64
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// lines are log lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.TrimSpace(string(p)))
	return len(p), nil
}

// with returns the lines that contain text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
