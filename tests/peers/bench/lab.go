package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/go-multierror"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
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
func (l *lab) measureAll(names []string) (map[string]*Scenario, error) {
	scenarios := map[string]func(*Scenario) error{
		Graceful: l.graceful, Crash: l.crash, Steal: l.steal,
		Requests: l.requests, Scale: l.scale, Kill: l.kill, Crowd: l.herd,
	}
	var all multierror.Group
	measured := map[string]*Scenario{}
	for _, name := range names {
		s := &Scenario{Began: time.Now(), Machine: machine(), Versions: versions()}
		measured[name] = s
		all.Go(func() error {
			if err := scenarios[name](s); err != nil {
				return fmt.Errorf("scenario %s: %w", name, err)
			}
			return nil
		})
	}
	return measured, all.Wait().ErrorOrNil()
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

func (s setup) series(part string) Series {
	return Series{Library: s.library.String(), Timing: s.timing.String(), Part: part}
}

// spec returns a candidate of this setup.
func (s setup) spec(namespace, election, identity string) electors.Spec {
	return electors.Spec{
		Namespace: namespace, Election: election, Identity: identity, Revision: stable, Lock: s.lock, Timing: s.timing,
	}
}

// enter starts a candidate in its own process, with a relay on request.
func (l *lab) enter(relayed bool, library electors.Library, spec electors.Spec) (*electors.Member, error) {
	enter := electors.Enter
	if relayed {
		enter = electors.EnterThrough
	}
	return enter(l.ctx, library, l.cluster.Admin(), spec, slog.New(slog.DiscardHandler))
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
