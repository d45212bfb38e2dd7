package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
	"incumbent.dev/incumbent/tests/peers/report"
)

// lab is where scenarios run.
type lab struct {
	ctx     context.Context
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	quick   bool
	// sizes are how many elections the scenario scale has in one process.
	sizes []int
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

// choose returns the value for a quick run or for a full one.
func choose[T any](l *lab, quick, full T) T {
	if l.quick {
		return quick
	}
	return full
}

// measureAll runs scenarios at the same time.
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
		report.Requests: l.requests, report.Scale: l.scale,
	}[name]
	s := &report.Scenario{Began: time.Now(), Machine: machine(), Versions: versions(), Quick: l.quick}
	harness, servers := ownCPU(), l.serverCPU()
	if err := scenario(s); err != nil {
		return nil, err
	}
	s.Seconds = time.Since(s.Began).Seconds()
	s.HarnessCPU, s.ServerCPU = ownCPU()-harness, l.serverCPU()-servers
	return s, nil
}

// setup is one row of a scenario of times.
type setup struct {
	library electors.Library
	timing  electors.Timing
	lock    electors.Lock
}

// setups are those of elections without rank: first the one that users of each
// library have.
var setups = []setup{
	{electors.Incumbent, electors.IstioTiming, electors.ConfigMap},
	{electors.Incumbent, electors.IstioTiming, electors.Lease},
	{electors.Istio, electors.IstioTiming, electors.ConfigMap},
	{electors.Istio, electors.IstioTiming, electors.Lease},
	{electors.ClientGo, electors.IstioTiming, electors.Lease},
	{electors.Incumbent, electors.KubernetesTiming, electors.Lease},
	{electors.ClientGo, electors.KubernetesTiming, electors.Lease},
}

func (s setup) series(part string) report.Series {
	return report.Series{Library: s.library.String(), Timing: s.timing.String(), Case: s.lock.String(), Part: part}
}

// spec is a candidate of this setup.
func (s setup) spec(namespace, election, identity string) electors.Spec {
	return electors.Spec{
		Namespace: namespace, Election: election, Identity: identity, Revision: stable, Lock: s.lock, Timing: s.timing,
	}
}

// enter starts a candidate in a process of its own.
func (l *lab) enter(s setup, namespace, election, identity string) (*member, error) {
	return l.enterAs(s.library, s.spec(namespace, election, identity))
}

func (l *lab) enterAs(library electors.Library, spec electors.Spec) (*member, error) {
	p, err := electors.NewProcess(library, l.cluster.Admin())
	if err != nil {
		return nil, err
	}
	c, err := p.Candidate(spec)
	if err != nil {
		return nil, err
	}
	c.Start(l.ctx)
	return &member{Candidate: c, process: p}, nil
}

// member is a candidate that has a process for itself.
type member struct {
	*electors.Candidate
	process *electors.Process
}

// end stops the candidate and its process. It must not wait for an answer any more.
func (m *member) end() {
	m.Stop()
	m.process.Close()
}

// phase waits between one and a bit and three and a bit periods, at random: so much
// that a follower polls at its steady pace, and the leader's and the follower's periods stand
// in any relation.
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

// The revisions of scenarios that have two.
const (
	stable = "stable"
	canary = "canary"
)

const (
	defaultTag    = "istio-revision-tag-default"
	revisionLabel = "istio.io/rev"
)

// setDefault makes revision the default one, for all elections of the cluster. It
// returns when the request that does it was sent.
func (l *lab) setDefault(revision string) (sent time.Time, err error) {
	hooks := l.admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	hook, err := hooks.Get(l.ctx, defaultTag, metav1.GetOptions{})
	sent = time.Now()
	if apierrors.IsNotFound(err) {
		hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
			Name: defaultTag, Labels: map[string]string{revisionLabel: revision},
		}}
		_, err = hooks.Create(l.ctx, hook, metav1.CreateOptions{})
	} else if err == nil {
		hook.Labels[revisionLabel] = revision
		_, err = hooks.Update(l.ctx, hook, metav1.UpdateOptions{})
	}
	if err != nil {
		return sent, fmt.Errorf("making %s the default revision: %w", revision, err)
	}
	return sent, nil
}

// protobuf is how both incumbent's clients and a careful user of client-go talk.
func protobuf(config *rest.Config) *rest.Config {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	return config
}
