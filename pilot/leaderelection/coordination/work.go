package coordination

import (
	"cmp"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/members"
)

// memberTolerance is for how much longer than its duration a member may be silent, as its renewals come late.
const memberTolerance = 10 * time.Second

// work is one term of a Controller.
type work struct {
	*Controller
	queue     workqueue.TypedRateLimitingInterface[string]
	observers map[string]*Observer
	troubles  map[string]string // that were told, by election
	tried     time.Time         // when it was last tried whether the API server keeps a coordinated Lease's fields
}

// next looks at one election, and sees that it is looked at again when that is due.
func (w *work) next(ctx context.Context, name string) {
	again, err := w.reconcile(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.queue.AddRateLimited(name)
	default:
		w.queue.Forget(name)
		if again > 0 {
			w.queue.AddAfter(name, again)
		}
	}
}

// reconcile writes what is to be written now. Who has written in between is seen by the watch: a conflict is none of an error.
func (w *work) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	situation, known := w.cfg.Situation()
	if !known {
		return time.Second, nil
	}
	e, again := w.election(name, situation)
	if len(e.Candidates) == 0 && (e.Lease == nil || strategyOf(e.Lease) == "") {
		delete(w.observers, name)
		delete(w.troubles, name)
		return again, nil
	}
	o := w.observers[name]
	if o == nil {
		o = w.heard.observer(name)
		w.observers[name] = o
	}
	made, try, err := w.makeLock(ctx, name, e)
	if made && err == nil {
		return again, nil
	}
	var p Plan
	if err == nil {
		p = o.Plan(time.Now(), time.Now(), e, w.cfg.Strategies)
		err = w.write(ctx, o, e, p)
	}
	for _, d := range []time.Duration{again, try} {
		if d > 0 {
			p.again(d)
		}
	}
	if ctx.Err() == nil {
		w.tell(name, e, errors.Join(append(p.Unreadable, p.Err, err)...))
	}
	return p.Again, err
}

// election is what there is of it, and when that is to be looked at again although nothing has changed.
func (w *work) election(name string, situation Situation) (e Election, again time.Duration) {
	e = Election{Situation: situation, Lease: w.lease(name), Annotate: w.heard.drops.Load()}
	published := w.leaseCandidates(name)
	byMembers, left := w.byMembers()
	if byMembers {
		e.Candidates, again = w.memberCandidates(name)
	}
	if !byMembers || left > 0 && allPublished(e.Candidates, published) {
		e.Candidates = published
		return e, 0
	}
	e.Alive, e.Annotate = true, true
	if left > 0 && (again == 0 || left < again) {
		again = left
	}
	return e, again
}

// allPublished reports whether each candidate by a member has its LeaseCandidate.
func allPublished(byMembers, published []*coordinationv1beta1.LeaseCandidate) bool {
	return !slices.ContainsFunc(byMembers, func(m *coordinationv1beta1.LeaseCandidate) bool {
		return !slices.ContainsFunc(published, func(c *coordinationv1beta1.LeaseCandidate) bool { return c.Name == m.Name })
	})
}

func (w *work) lease(name string) *coordinationv1.Lease {
	object, exists, _ := w.leases.GetIndexer().GetByKey(w.cfg.Namespace + "/" + name)
	if lease, ok := object.(*coordinationv1.Lease); exists && ok && lease.Labels[members.Label] != members.LabelValue {
		return lease
	}
	return nil
}

func (w *work) leaseCandidates(name string) (all []*coordinationv1beta1.LeaseCandidate) {
	objects, _ := w.candidates.GetIndexer().ByIndex(byElection, name)
	for _, object := range objects {
		all = append(all, object.(*coordinationv1beta1.LeaseCandidate))
	}
	return all
}

// memberCandidates are the members that ask for a strategy in the election, are ready to lead, and have been heard of; and when
// the next of them is to be heard of.
func (w *work) memberCandidates(name string) (all []*coordinationv1beta1.LeaseCandidate, again time.Duration) {
	objects, _ := w.leases.GetIndexer().ByIndex(byElection, name)
	for _, object := range objects {
		lease := object.(*coordinationv1.Lease)
		m, err := w.heard.member(lease)
		if err != nil {
			continue
		}
		part, _ := m.Part(name)
		left := time.Until(w.heard.of(lease.Name).at.Add(m.Duration + memberTolerance))
		if !part.Warm || left <= 0 {
			continue
		}
		if again == 0 || left < again {
			again = left
		}
		all = append(all, fromMember(lease, m, part))
	}
	return all, again
}

// fromMember is a member as a candidate of one of its elections. The labels by which an operator tells candidates apart
// are those of its Lease.
func fromMember(lease *coordinationv1.Lease, m members.Member, part members.Election) *coordinationv1beta1.LeaseCandidate {
	version := strings.TrimPrefix(m.Version, "v")
	emulated := cmp.Or(m.EmulationVersion, version)
	c := &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{
			Name: CandidateName(m.Identity, part.Name), Namespace: lease.Namespace, UID: lease.UID, CreationTimestamp: lease.CreationTimestamp,
			Labels: map[string]string{},
		},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: part.Name, BinaryVersion: version, EmulationVersion: emulated,
			Strategy: coordinationv1.CoordinatedLeaseStrategy(part.Strategy),
		},
	}
	for key, value := range lease.Labels {
		c.Labels[key] = value
	}
	c.Labels[RevisionLabel], c.Labels[LocationLabel], c.Labels[FitLabel] = m.Revision, string(m.Cluster), fmt.Sprint(part.Fit)
	return c
}

// makeLock makes the lock, and writes the strategy on one that has none, where no controller of the API server's does that. It
// tries whether one does when there are candidates for a lock that is not there.
func (w *work) makeLock(ctx context.Context, name string, e Election) (made bool, again time.Duration, err error) {
	if len(e.Candidates) == 0 || e.Lease != nil && (!e.Annotate || strategyOf(e.Lease) != "") {
		return false, 0, nil
	}
	var p Plan
	_, strategy, err := w.cfg.Strategies.Choose(e.Situation, p.read(e.Candidates))
	if err != nil {
		if e.Annotate { // where the API server has a controller, a strategy that is not known here may be that one's
			w.tell(name, e, err)
		}
		return e.Annotate, 0, nil // what they ask for has to change: there is nothing to try again
	}
	leases := w.cfg.Client.CoordinationV1().Leases(w.cfg.Namespace)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, stored := freeLease(w.cfg.Namespace, name), (*coordinationv1.Lease)(nil)
	switch left := time.Until(w.tried.Add(unservedPeriod)); {
	case e.Lease != nil:
		lease = e.Lease.DeepCopy()
		ask(lease, strategy, true)
		stored, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	case e.Annotate:
		ask(lease, strategy, true)
		stored, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case left > 0:
		return false, left, nil
	default:
		w.tried = time.Now()
		ask(lease, strategy, false)
		stored, err = leases.Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err == nil {
		w.noteFields(lease, stored)
	}
	return e.Annotate, unservedPeriod, unlessConflict(err)
}

// noteFields learns from what was stored whether the API server keeps what of a Lease's spec is the feature's: it may serve
// LeaseCandidates and not have the feature.
func (c *Controller) noteFields(sent, stored *coordinationv1.Lease) {
	drops, told := dropped(sent, stored)
	if !told || c.heard.drops.Swap(drops) == drops {
		return
	}
	if drops && !c.unserved() {
		c.cfg.Logger.Info("the API server serves LeaseCandidates, but drops strategy and preferredHolder of a Lease: they stand in annotations, and locks are made here")
	}
	c.Reconsider()
}

// freeLease is a lock that nobody has held.
func freeLease(namespace, name string) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)), RenewTime: &at, AcquireTime: &at, LeaseTransitions: new(int32(0)),
		},
	}
}

// unlessConflict is nil where somebody else was faster: what there is now is looked at next.
func unlessConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// request bounds what is sent.
func request(ctx context.Context, what string, send func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := unlessConflict(send(ctx)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// write makes true what is planned. Each request is bounded, and guarded by what it was decided on.
func (w *work) write(ctx context.Context, o *Observer, e Election, p Plan) error {
	errs := []error{w.ask(ctx, o, p.Ping)}
	candidates := w.cfg.Client.CoordinationV1beta1().LeaseCandidates(w.cfg.Namespace)
	for _, c := range p.Collect {
		errs = append(errs, request(ctx, "collecting LeaseCandidate "+c.Name, func(ctx context.Context) error {
			w.cfg.Logger.Info("collects a candidate that has not answered", "leaseCandidate", c.Name, "silent", CandidateDuration)
			return candidates.Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}})
		}))
	}
	if p.Lease != nil {
		errs = append(errs, request(ctx, "writing Lease "+p.Lease.Name, func(ctx context.Context) error {
			written, err := w.cfg.Client.CoordinationV1().Leases(w.cfg.Namespace).Update(ctx, p.Lease, metav1.UpdateOptions{})
			if err == nil {
				o.wrote(time.Now(), e.Lease.ResourceVersion, written)
				w.noteFields(p.Lease, written)
				w.chosen(e.Lease, written)
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// ask asks all candidates at once: the choice waits for the last of them.
func (w *work) ask(ctx context.Context, o *Observer, all []*coordinationv1beta1.LeaseCandidate) error {
	// In one order, so that what is the same is told once.
	all = slices.SortedFunc(slices.Values(all), func(a, b *coordinationv1beta1.LeaseCandidate) int { return strings.Compare(a.Name, b.Name) })
	candidates := w.cfg.Client.CoordinationV1beta1().LeaseCandidates(w.cfg.Namespace)
	errs := make([]error, len(all))
	var asking sync.WaitGroup
	for i, c := range all {
		asking.Go(func() {
			errs[i] = request(ctx, "asking LeaseCandidate "+c.Name, func(ctx context.Context) error {
				_, err := candidates.Update(ctx, Pinged(c, time.Now()), metav1.UpdateOptions{})
				return err
			})
		})
	}
	asking.Wait()
	for i, c := range all {
		if errs[i] == nil {
			o.replaced(time.Now(), c)
		}
	}
	return errors.Join(errs...)
}

// chosen reports what a write has changed.
func (w *work) chosen(before, after *coordinationv1.Lease) {
	holder, wanted := value(after.Spec.HolderIdentity), preferred(after)
	log := w.cfg.Logger.With("lease", after.Name, "strategy", strategyOf(after))
	switch {
	case strategyOf(before) == "":
		log.Info("writes the strategy again, which was wiped", "leader", holder)
	case holder != "" && nominated(after) && (holder != value(before.Spec.HolderIdentity) || !nominated(before)):
		log.Info("names the leader", "leader", holder, "before", value(before.Spec.HolderIdentity))
		w.event(after, corev1.EventTypeNormal, "LeaderNamed", "named %s (%s)", holder, strategyOf(after))
	case wanted != "":
		log.Info("prefers another to the leader", "leader", holder, "preferred", wanted)
		w.event(after, corev1.EventTypeNormal, "LeaderPreferred", "prefers %s to %s (%s)", wanted, holder, strategyOf(after))
	case preferred(before) != "":
		log.Info("prefers nobody any more", "leader", holder, "preferred", preferred(before))
	}
}

func (w *work) event(about runtime.Object, eventType, reason, message string, args ...any) {
	if w.cfg.EventRecorder != nil {
		w.cfg.EventRecorder.Eventf(about, eventType, reason, message, args...)
	}
}

// objects are those of the election that the API server has: what was made of a member is none.
func (e Election) objects() (all []runtime.Object) {
	if e.Lease != nil {
		all = append(all, e.Lease)
	}
	for _, c := range e.Candidates {
		if c.ResourceVersion != "" {
			all = append(all, c)
		}
	}
	return all
}

// tell reports a trouble of an election once, until it is another one or over.
func (w *work) tell(name string, e Election, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := w.troubles[name]
	if was == text {
		return
	}
	w.troubles[name] = text
	log := w.cfg.Logger.With("lease", name)
	switch {
	case err == nil:
		delete(w.troubles, name)
		log.Info("the election can be coordinated again")
	case errors.Is(err, ErrStrategies):
		log.Warn("nobody is named", "err", err)
		for _, object := range e.objects() {
			w.event(object, corev1.EventTypeWarning, "StrategiesDisagree", "nobody is named: %v", err)
		}
	default:
		log.Warn("the election cannot be coordinated as it should", "err", err)
	}
}
