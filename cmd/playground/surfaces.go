package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// The metrics that the demo judges by; each has the label name, the lock's.
const (
	metricLeads    = "leader_election_master_status"
	metricCover    = "incumbent_election_cover_left_seconds"
	metricAdmitted = "incumbent_election_admitted_writes_total"
	metricRefused  = "incumbent_election_refused_writes_total"
	metricRequests = "incumbent_election_requests_total"
)

// samples are a process's metrics of one election, by the name and its further labels.
type samples map[string]float64

// sum adds up the samples of a metric whose labels hold some text.
func (s samples) sum(metric, label string) float64 {
	total := 0.0
	for series, value := range s {
		name, labels, _ := strings.Cut(series, "{")
		if name == metric && strings.Contains(labels, label) {
			total += value
		}
	}
	return total
}

// parseMetrics keeps the samples of an election, of Prometheus' text format.
func parseMetrics(text io.Reader, election string) (samples, error) {
	found := samples{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || strings.HasPrefix(series, "#") || !strings.Contains(series, fmt.Sprintf("name=%q", election)) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("the sample %s: %w", lines.Text(), err)
		}
		found[series] = number
	}
	return found, lines.Err()
}

// surface is what a replica tells of itself over HTTP.
type surface struct {
	metrics       samples
	leads, fenced bool
	holder        string
	// defaultRevision is as the replica knows it; nil: it does not.
	defaultRevision *string
}

// surfaceOf asks a replica for all of it.
func surfaceOf(ctx context.Context, address string) (surface, error) {
	base := fmt.Sprintf("http://%s:%d", address, port)
	if err := errors.Join(ask(ctx, base+"/healthz"), ask(ctx, base+"/readyz")); err != nil {
		return surface{}, err
	}
	var states []struct {
		Lock            string
		Leading         bool
		LeaderIdentity  string
		DefaultRevision *string
		Fence           struct{ InEffect bool }
	}
	if err := getJSON(ctx, base+"/debug/elections", &states); err != nil {
		return surface{}, err
	}
	var s surface
	for _, state := range states {
		if state.Lock == witnessed {
			s.leads, s.holder, s.defaultRevision, s.fenced = state.Leading, inspect.Pod(state.LeaderIdentity, witnessed), state.DefaultRevision, state.Fence.InEffect
		}
	}
	var err error
	s.metrics, err = metricsOf(ctx, address)
	return s, err
}

func metricsOf(ctx context.Context, address string) (samples, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/metrics", address, port), nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // no connection is left behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseMetrics(resp.Body, witnessed)
}

// contradiction says where what a replica tells is not so; nil: all of it is.
func (s surface) contradiction(pod, leader, defaultRevision string, fenced bool, renew time.Duration) error {
	leads := pod == leader
	cover := s.metrics.sum(metricCover, "")
	switch {
	case s.leads != leads:
		return fmt.Errorf("%s says at /debug/elections that leading is %v, while %s leads", pod, s.leads, leader)
	case s.holder != leader:
		return fmt.Errorf("%s says at /debug/elections that %q leads, and it is %s", pod, s.holder, leader)
	case s.defaultRevision == nil || *s.defaultRevision != defaultRevision:
		return fmt.Errorf("%s knows another default revision than %s", pod, defaultRevision)
	case fenced && !s.fenced:
		return fmt.Errorf("%s says at /debug/elections that its fence does not stand", pod)
	case (s.metrics.sum(metricLeads, "") == 1) != leads:
		return fmt.Errorf("%s has %s at %v, while %s leads", pod, metricLeads, s.metrics.sum(metricLeads, ""), leader)
	case (cover > 0) != leads || cover > renew.Seconds():
		return fmt.Errorf("%s has %s at %v, while %s leads and the renew deadline is %v", pod, metricCover, cover, leader, renew)
	}
	return nil
}

// consistent waits until every replica tells of itself what is so.
func (d *demo) consistent(ctx context.Context) error {
	leader, err := d.leader()
	if err != nil {
		return err
	}
	// Each needs a moment to learn of the leader, and its fence's self-test some tries.
	ctx, cancel := context.WithTimeoutCause(ctx, d.timing.lease, fmt.Errorf("still so after %v", d.timing.lease))
	defer cancel()
	var verdict error
	return d.watched.await(ctx, 10*recheck, func(v view) (bool, string) {
		now := d.contradictions(ctx, v, leader)
		if ctx.Err() == nil { // else it is about the questions that were cut off
			verdict = now
		}
		if verdict != nil {
			return false, verdict.Error()
		}
		return ctx.Err() == nil, ""
	})
}

// contradictions asks each replica that is ready.
func (d *demo) contradictions(ctx context.Context, v view, leader string) error {
	var errs []error
	for name, p := range v.pods {
		if !p.ready || p.leaving {
			continue // it will be asked in the next act
		}
		s, err := surfaceOf(ctx, p.ip)
		if err == nil {
			err = s.contradiction(name, leader, v.defaultRevision, !d.lawless, d.timing.renew)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// announced waits for the Event in which the leader says how it came by the lock.
func (d *demo) announced(ctx context.Context) error {
	leader, err := d.leader()
	if err != nil {
		return err
	}
	claim := evidence{leader: leader, said: d.journal.since(d.installed, witnessed)}.claimed()
	identity := leader
	if d.coordinated {
		identity = coordination.CandidateName(leader, witnessed)
	}
	want := fmt.Sprintf("%s became leader (%s)", identity, claim)
	for {
		events, err := d.kube.CoreV1().Events(systemNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + witnessed})
		if err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Message == want }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("there is no Event %q: %w", want, errors.Join(err, context.Cause(ctx)))
		case <-time.After(10 * recheck):
		}
	}
}

// quiet waits for a while in which no follower sends anything for the lock: they are woken by
// their watches. One that polls is not.
func (d *demo) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, errors.New("followers should be woken by their watches"))
	defer cancel()
	for {
		before, err := d.followersRequests(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * d.timing.retry):
		}
		after, err := d.followersRequests(ctx)
		if err != nil {
			return err
		}
		if after == before {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("followers sent %v requests for the lock in %v: %w", after-before, 2*d.timing.retry, context.Cause(ctx))
		}
	}
}

// followersRequests is how many requests those who do not lead have sent for the lock.
func (d *demo) followersRequests(ctx context.Context) (float64, error) {
	leader, err := d.leader()
	if err != nil {
		return 0, err
	}
	total := 0.0
	v, _ := d.watched.now()
	for name, p := range v.pods {
		if name == leader {
			continue
		}
		m, err := metricsOf(ctx, p.ip)
		if err != nil {
			return 0, err
		}
		total += m.sum(metricRequests, "")
	}
	return total, nil
}

// admitted is how many writes the gate of a pod has let through, and how many of them the
// fence has refused.
func (d *demo) admitted(ctx context.Context, pod string) (passed, refused float64, err error) {
	v, _ := d.watched.now()
	m, err := metricsOf(ctx, v.pods[pod].ip)
	if err != nil {
		return 0, 0, fmt.Errorf("asking pod %s: %w", pod, err)
	}
	return m.sum(metricAdmitted, ""), m.sum(metricRefused, `by="fence"`), nil
}
