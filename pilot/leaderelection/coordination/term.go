package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// requestTimeout limits each request. A slow API server is not a failure.
	requestTimeout = 10 * time.Second
	// probePeriod is the time between two checks of whether the API server keeps the fields of a coordinated Lease.
	probePeriod = 30 * time.Second
)

// term is one term of a Controller.
type term struct {
	*Controller
	queue     workqueue.TypedRateLimitingInterface[string]
	observers map[string]*observer
	problems  apirequest.Reported[string] // by election
	probed    time.Time                   // when the API server was last probed
	latency   apirequest.Latency
}

func newTerm(c *Controller, queue workqueue.TypedRateLimitingInterface[string]) *term {
	return &term{Controller: c, queue: queue, observers: map[string]*observer{}}
}

// process reconciles one election and enqueues it again when the next plan is due.
func (t *term) process(ctx context.Context, name string) {
	again, err := t.reconcile(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.queue.AddRateLimited(name)
	default:
		t.queue.Forget(name)
		if again > 0 {
			t.queue.AddAfter(name, again)
		}
	}
}

// reconcile executes the plan of an election. A conflict is no error, because the watch delivers the newer version.
func (t *term) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	situation, known := t.cfg.Situation()
	if !known {
		return time.Second, nil
	}
	e := t.election(name, situation)
	if len(e.Candidates) == 0 && (e.Lease == nil || strategyOf(e.Lease) == "") {
		delete(t.observers, name)
		t.problems.Change(name, "")
		return 0, nil
	}
	o := t.observers[name]
	if o == nil {
		o = t.observer(name)
		t.observers[name] = o
	}
	created, retry, err := t.createLock(ctx, name, e)
	if created && err == nil {
		return 0, nil
	}
	var p plan
	if err == nil {
		p = o.plan(time.Now(), time.Now(), e, t.cfg.Strategies)
		err = t.write(ctx, o, e, p)
	}
	if retry > 0 {
		p.within(retry)
	}
	if ctx.Err() == nil {
		t.report(name, e, errors.Join(append(p.Invalid, p.Err, err)...))
	}
	return p.Again, err
}

// election returns the state of an election.
func (t *term) election(name string, situation Situation) election {
	return election{Situation: situation, Lease: t.lease(name), Candidates: t.leaseCandidates(name), Annotate: t.dropsFields.Load()}
}

func (t *term) lease(name string) *coordinationv1.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leases[name]
}

// leaseCandidates returns the candidates of an election. If the API server stops to serve LeaseCandidates, the cache is outdated.
func (t *term) leaseCandidates(name string) (all []*coordinationv1beta1.LeaseCandidate) {
	if t.unserved.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, candidate := range t.candidates {
		if candidate.Spec.LeaseName == name {
			all = append(all, candidate)
		}
	}
	return all
}

// createLock creates the lock, or writes the strategy on a lock without one, if the API server's coordinator does not. A dry-run
// create shows whether it does.
func (t *term) createLock(ctx context.Context, name string, e election) (created bool, again time.Duration, err error) {
	if len(e.Candidates) == 0 || e.Lease != nil && (!e.Annotate || strategyOf(e.Lease) != "") {
		return false, 0, nil
	}
	var p plan
	_, strategy, err := t.cfg.Strategies.choose(e.Situation, p.parse(e.Candidates))
	if err != nil {
		if e.Annotate { // otherwise the API server's coordinator may implement the strategy
			t.report(name, e, err)
		}
		return e.Annotate, 0, nil // only a change of the candidates can help
	}
	leases := t.cfg.Client.CoordinationV1().Leases(t.cfg.Namespace)
	create := func(lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
		return request(ctx, &t.latency, func(ctx context.Context) (*coordinationv1.Lease, error) { return leases.Create(ctx, lease, opts) })
	}
	lease := newLease(t.cfg.Namespace, name)
	var stored *coordinationv1.Lease
	switch left := time.Until(t.probed.Add(probePeriod)); {
	case e.Lease != nil:
		lease = e.Lease.DeepCopy()
		setStrategy(lease, strategy, true)
		stored, err = request(ctx, &t.latency, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return leases.Update(ctx, lease, metav1.UpdateOptions{})
		})
	case e.Annotate:
		setStrategy(lease, strategy, true)
		stored, err = create(lease, metav1.CreateOptions{})
	case left > 0:
		return false, left, nil
	default:
		t.probed = time.Now()
		setStrategy(lease, strategy, false)
		stored, err = create(lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err == nil {
		t.recordFields(lease, stored)
	}
	return e.Annotate, probePeriod, ignoreConflict(err)
}

// recordFields records whether the API server keeps strategy and preferredHolder of a Lease. It may serve LeaseCandidates
// and drop these fields.
func (c *Controller) recordFields(sent, stored *coordinationv1.Lease) {
	drops, known := fieldsDropped(sent, stored)
	if !known || c.dropsFields.Swap(drops) == drops {
		return
	}
	if drops {
		c.cfg.Logger.Info("API server drops strategy and preferredHolder of a Lease; using annotations and creating locks")
	}
	c.Refresh()
}

// newLease returns a free lock.
func newLease(namespace, name string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)), RenewTime: &now, AcquireTime: &now, LeaseTransitions: new(int32(0)),
		},
	}
}

func ignoreConflict(err error) error {
	if apirequest.Outdated(err) {
		return nil
	}
	return err
}

// request sends a guarded request, and a second time if its answer is late.
func request[T any](ctx context.Context, latency *apirequest.Latency, send func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return apirequest.Twice(ctx, latency, apirequest.Rejected, send)
}

// try sends a request that may meet a newer version.
func (t *term) try(ctx context.Context, action string, send func(ctx context.Context) error) error {
	_, err := request(ctx, &t.latency, func(ctx context.Context) (struct{}, error) { return struct{}{}, send(ctx) })
	if err := ignoreConflict(err); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// write executes a plan.
func (t *term) write(ctx context.Context, o *observer, e election, p plan) error {
	errs := []error{t.ping(ctx, o, p.Ping)}
	candidates := t.cfg.Client.CoordinationV1beta1().LeaseCandidates(t.cfg.Namespace)
	for _, c := range p.Delete {
		t.cfg.Logger.Info("deleting a LeaseCandidate that did not answer", "leaseCandidate", c.Name, "timeout", candidateDuration)
		errs = append(errs, t.try(ctx, "delete LeaseCandidate "+c.Name, func(ctx context.Context) error {
			return candidates.Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}})
		}))
	}
	if p.Lease != nil {
		errs = append(errs, t.try(ctx, "update Lease "+p.Lease.Name, func(ctx context.Context) error {
			written, err := t.cfg.Client.CoordinationV1().Leases(t.cfg.Namespace).Update(ctx, p.Lease, metav1.UpdateOptions{})
			if err == nil {
				o.wrote(time.Now(), e.Lease.ResourceVersion, written)
				t.recordFields(p.Lease, written)
				t.reportChoice(e.Lease, written)
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// ping pings all candidates concurrently.
func (t *term) ping(ctx context.Context, o *observer, all []*coordinationv1beta1.LeaseCandidate) error {
	// The order makes equal errors equal, so that they are logged once.
	all = slices.SortedFunc(slices.Values(all), func(a, b *coordinationv1beta1.LeaseCandidate) int { return strings.Compare(a.Name, b.Name) })
	candidates := t.cfg.Client.CoordinationV1beta1().LeaseCandidates(t.cfg.Namespace)
	errs := make([]error, len(all))
	var pings sync.WaitGroup
	for i, c := range all {
		pings.Go(func() {
			errs[i] = t.try(ctx, "ping LeaseCandidate "+c.Name, func(ctx context.Context) error {
				_, err := candidates.Update(ctx, pinged(c, time.Now()), metav1.UpdateOptions{})
				return err
			})
		})
	}
	pings.Wait()
	for i, c := range all {
		if errs[i] == nil {
			o.markStale(time.Now(), c)
		}
	}
	return errors.Join(errs...)
}

// reportChoice logs what a write of the lock changed.
func (t *term) reportChoice(before, after *coordinationv1.Lease) {
	holder := ptr.Deref(after.Spec.HolderIdentity, "")
	former := ptr.Deref(before.Spec.HolderIdentity, "")
	preferred := preferredHolder(after)
	log := t.cfg.Logger.With("lease", after.Name, "strategy", strategyOf(after))
	switch {
	case strategyOf(before) == "":
		log.Info("restoring strategy that was removed from the lock", "leader", holder)
	case strategyOf(before) != strategyOf(after):
		log.Warn("replaced a strategy that no candidate requests and that prevented a leader", "replaced", strategyOf(before))
		t.event(after, corev1.EventTypeWarning, "StrategyReplaced", "replaced strategy %s, which no candidate requests and which prevented a leader, by %s",
			strategyOf(before), strategyOf(after))
	case holder != "" && isNominated(after) && (holder != former || !isNominated(before)):
		log.Info("named the leader", "leader", holder, "before", former)
		t.event(after, corev1.EventTypeNormal, "LeaderNamed", "named %s (%s)", holder, strategyOf(after))
	case preferred != "":
		log.Info("requested a leader change", "leader", holder, "preferred", preferred)
		t.event(after, corev1.EventTypeNormal, "LeaderPreferred", "prefers %s to %s (%s)", preferred, holder, strategyOf(after))
	case preferredHolder(before) != "":
		log.Info("withdrew the request for a leader change", "leader", holder, "preferred", preferredHolder(before))
		t.event(after, corev1.EventTypeNormal, "PreferenceWithdrawn", "no longer prefers %s to %s (%s)", preferredHolder(before), holder, strategyOf(after))
	}
}

func (t *term) event(about runtime.Object, eventType, reason, message string, args ...any) {
	if t.cfg.EventRecorder != nil {
		t.cfg.EventRecorder.Eventf(about, eventType, reason, message, args...)
	}
}

// objects returns the lock and the candidates.
func (e election) objects() (all []runtime.Object) {
	if e.Lease != nil {
		all = append(all, e.Lease)
	}
	for _, c := range e.Candidates {
		all = append(all, c)
	}
	return all
}

// report logs a problem of an election once, until it changes or is resolved.
func (t *term) report(name string, e election, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if _, changed := t.problems.Change(name, text); !changed {
		return
	}
	log := t.cfg.Logger.With("lease", name)
	switch {
	case err == nil:
		log.Info("problem of the election resolved")
	case errors.Is(err, errStrategies), errors.Is(err, errUnknownStrategy):
		log.Warn("cannot choose a leader", "err", err)
		reason := "StrategyUnknown"
		if errors.Is(err, errStrategies) {
			reason = "StrategiesDisagree"
		}
		for _, object := range e.objects() {
			t.event(object, corev1.EventTypeWarning, reason, "cannot choose a leader: %v", err)
		}
	default:
		log.Warn("failed to coordinate the election", "err", err)
	}
}
