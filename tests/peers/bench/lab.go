package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// lab runs the scenarios.
type lab struct {
	ctx     context.Context
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	quick   bool
}

func newLab(ctx context.Context, c *cluster.Cluster, quick bool) (*lab, error) {
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, err
	}
	l := &lab{ctx: ctx, cluster: c, admin: admin, quick: quick}
	_, err = l.setDefault(stable)
	return l, err
}

// choose returns the value for a quick or a full run.
func choose[T any](l *lab, quick, full T) T {
	if l.quick {
		return quick
	}
	return full
}

// measureAll runs scenarios concurrently.
func (l *lab) measureAll(names []string) (map[string]*report.Scenario, error) {
	var (
		all      sync.WaitGroup
		mu       sync.Mutex
		errs     []error
		measured = map[string]*report.Scenario{}
	)
	for _, name := range names {
		all.Go(func() {
			s, err := l.measure(name)
			mu.Lock()
			defer mu.Unlock()
			measured[name] = s
			if err != nil {
				errs = append(errs, fmt.Errorf("scenario %s: %w", name, err))
			}
		})
	}
	all.Wait()
	return measured, errors.Join(errs...)
}

// measure runs one scenario.
func (l *lab) measure(name string) (*report.Scenario, error) {
	scenario := map[string]func(*report.Scenario) error{
		report.Graceful: l.graceful, report.Crash: l.crash, report.Steal: l.steal,
		report.Requests: l.requests, report.Scale: l.scale, report.Kill: l.kill,
	}[name]
	s := &report.Scenario{Began: time.Now(), Machine: machine(), Versions: versions()}
	return s, scenario(s)
}

// setup is a row of a scenario.
type setup struct {
	library electors.Library
	timing  electors.Timing
	lock    electors.Lock
}

// setups are the elections without rank, with the default lock of each library.
var setups = []setup{
	{electors.Incumbent, electors.IstioTiming, electors.ConfigMap},
	{electors.Istio, electors.IstioTiming, electors.ConfigMap},
	{electors.ClientGo, electors.IstioTiming, electors.Lease},
	{electors.Incumbent, electors.KubernetesTiming, electors.Lease},
	{electors.ClientGo, electors.KubernetesTiming, electors.Lease},
}

func (s setup) series(part string) report.Series {
	return report.Series{Library: s.library.String(), Timing: s.timing.String(), Part: part}
}

// spec returns a candidate of this setup.
func (s setup) spec(namespace, election, identity string) electors.Spec {
	return electors.Spec{
		Namespace: namespace, Election: election, Identity: identity, Revision: stable, Lock: s.lock, Timing: s.timing,
	}
}

// enter starts a candidate in its own process.
func (l *lab) enter(s setup, namespace, election, identity string) (*electors.Member, error) {
	return l.enterAs(s.library, s.spec(namespace, election, identity))
}

func (l *lab) enterAs(library electors.Library, spec electors.Spec) (*electors.Member, error) {
	return electors.Enter(l.ctx, library, l.cluster.Admin(), spec, slog.New(slog.DiscardHandler))
}

// phase waits a random time between one and three periods, so that leader and follower have an arbitrary phase.
func (l *lab) phase(t electors.Timing) error {
	least := t.Retry + t.Retry/4
	return l.pause(least + rand.N(2*t.Retry))
}

func (l *lab) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// The two revisions of a scenario.
const (
	stable = "stable"
	canary = "canary"
)

func (l *lab) setDefault(revision string) (sent time.Time, err error) {
	return electors.SetDefault(l.ctx, l.admin, revision)
}

// protobuf sets the content type of incumbent's clients and of a tuned client-go.
func protobuf(config *rest.Config) *rest.Config {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	return config
}
