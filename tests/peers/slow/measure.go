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
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/tests/peers/electors"
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
	end, stop := context.WithCancel(l.ctx)
	defer stop()
	var member *electors.Member
	entered := make(chan struct{})
	leads := func(ctx context.Context) { // returns 3 s after the first term has begun
		select {
		case <-entered:
		case <-ctx.Done():
			return
		}
		_, _ = member.AwaitStart(ctx, time.Time{})
		wait(ctx, 3*time.Second)
	}
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == r.scenario })
	config := rest.CopyConfig(l.admin)
	connections, err := scenarios[i].proxy(end, l, config, r.late, leads)
	if err != nil {
		return err
	}
	var logs harness.Log
	began := time.Now()
	member, err = electors.Enter(l.ctx, r.library, config, electors.Spec{
		Namespace: l.namespace, Identity: "a", Election: name, Revision: "stable", PerRevision: r.library == electors.Incumbent, Lock: electors.Lease, Timing: r.timing,
	}, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		return err
	}
	close(entered)
	wait(l.ctx, window)
	r.count(member.Spans(), began, time.Now())
	r.conns = connections()
	for _, n := range member.Process.Counts() {
		r.sent += n
	}
	stop()
	member.End()
	for line := range strings.Lines(logs.String()) {
		if strings.Contains(line, "latency=") {
			r.said = append(r.said, strings.TrimSpace(line))
		}
	}
	if l.verbose {
		fmt.Printf("%s %v %v:\n%s", r.scenario, r.timing, r.late, &logs)
	}
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
