package coordination

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/record"
)

// scenario is an election whose objects the test changes, and a coordinator with its own clock.
type scenario struct {
	t        testing.TB
	now      time.Time
	wall     time.Time
	observer observer
	e        election
	alive    bool // all candidates have just answered a ping
}

// answered records an answer of all candidates, so that no ping is needed.
func (o *observer) answered(now time.Time, e election) {
	o.observe(now, e)
	for _, c := range o.candidates {
		c.answered = now
	}
}

func newScenario(t testing.TB, names ...string) *scenario {
	strategy := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)
	s := &scenario{t: t, now: epoch, wall: epoch}
	s.e.Lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{Strategy: &strategy},
	}
	for i, name := range names {
		at := metav1.NewMicroTime(epoch.Add(-time.Hour))
		s.e.Candidates = append(s.e.Candidates, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(i) * time.Second))},
			Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: strategy, RenewTime: &at},
		})
	}
	return s
}

// newLed returns a scenario without pings in which the first candidate leads.
func newLed(t testing.TB, names ...string) *scenario {
	s := newScenario(t, names...)
	s.alive = true
	s.e.Annotate = true
	s.step()
	s.renew()
	return s
}

// step executes the plan. The candidates answer pings, except for the silent ones.
func (s *scenario) step(silent ...string) plan {
	if s.alive {
		s.observer.answered(s.now, s.e)
	}
	p := s.observer.plan(s.now, s.wall, s.e, Own())
	if p.Lease != nil {
		s.e.Lease = s.stored(p.Lease)
	}
	for _, ping := range p.Ping {
		for i, c := range s.e.Candidates {
			if c.Name == ping.Name {
				s.e.Candidates[i] = pinged(c, s.wall)
				if !slices.Contains(silent, c.Name) {
					s.e.Candidates[i].Spec.RenewTime = s.e.Candidates[i].Spec.PingTime
				}
			}
		}
	}
	return p
}

// stored returns what the API server stores. Without the feature it drops the fields, except for an existing strategy.
func (s *scenario) stored(sent *coordinationv1.Lease) *coordinationv1.Lease {
	if !s.e.Annotate {
		return sent
	}
	stored := sent.DeepCopy()
	stored.Spec.PreferredHolder = nil
	if s.e.Lease.Spec.Strategy == nil {
		stored.Spec.Strategy = nil
	}
	return stored
}

func (s *scenario) sleep(d time.Duration) {
	s.now = s.now.Add(d)
	s.wall = s.wall.Add(d)
}

func (s *scenario) wantLock(holder, preferred string) {
	s.t.Helper()
	if h, p := ptr.Deref(s.e.Lease.Spec.HolderIdentity, ""), preferredHolder(s.e.Lease); h != holder || p != preferred {
		s.t.Errorf("holder %q, preferred %q; want %q, %q", h, p, holder, preferred)
	}
}

// edit changes the lock.
func (s *scenario) edit(change func(*coordinationv1.Lease)) {
	s.e.Lease = s.e.Lease.DeepCopy()
	change(s.e.Lease)
}

// renew is a write of the holder.
func (s *scenario) renew() {
	s.edit(func(l *coordinationv1.Lease) {
		at := laterThan(s.wall, l.Spec.RenewTime)
		l.Spec.AcquireTime = &at
		l.Spec.RenewTime = &at
		l.Spec.LeaseDurationSeconds = new(int32(15))
	})
}

// release is a release by the holder or nominee.
func (s *scenario) release() {
	s.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
}

// withdraw is another coordinator's removal of the preference.
func (s *scenario) withdraw() {
	s.edit(clearPreferredHolder)
	s.renew()
}

func (s *scenario) wantNothing(when string) {
	s.t.Helper()
	if p := s.step(); p.Lease != nil || len(p.Ping)+len(p.Delete) > 0 || p.Err != nil {
		s.t.Errorf("%s: planned %v", when, p)
	}
}

func (s *scenario) wantAgain(when string, want time.Duration, silent ...string) {
	s.t.Helper()
	if p := s.step(silent...); p.Again != want {
		s.t.Errorf("%s: again after %v, want %v (%v)", when, p.Again, want, p)
	}
}

func (s *scenario) label(i int, labels map[string]string) {
	s.e.Candidates[i] = s.e.Candidates[i].DeepCopy()
	s.e.Candidates[i].Labels = labels
}

// prioritize makes a candidate the best.
func (s *scenario) prioritize(i int) { s.label(i, map[string]string{PriorityLabel: "1"}) }

// sleepAndRenew sleeps in steps in which the holder renews and nothing is planned.
func (s *scenario) sleepAndRenew(when string, d time.Duration) {
	s.t.Helper()
	for left := d; left > 0; left -= 10 * time.Second {
		s.sleep(min(left, 10*time.Second))
		s.renew()
		s.wantNothing(when)
	}
}

func TestPlan_NamesAndPrefers(t *testing.T) {
	for _, skew := range []time.Duration{0, -time.Hour, time.Hour} {
		s := newScenario(t, "a", "b")
		s.wall = s.wall.Add(skew)
		if p := s.step(); len(p.Ping) != 2 || p.Lease != nil {
			t.Fatalf("first plan: %v", p)
		}
		if p := s.step(); p.Lease == nil || p.Lease.ResourceVersion != "1" || p.Lease.Spec.AcquireTime != nil || *p.Lease.Spec.LeaseDurationSeconds != 5 {
			t.Fatalf("second plan: %v", p)
		}
		s.wantLock("a", "")
		s.renew()
		s.wantNothing("a leads")
		s.prioritize(1)
		s.sleep(10 * time.Second)
		if p := s.step(); len(p.Ping) != 2 {
			t.Fatalf("b is better: %v", p)
		}
		s.step()
		s.wantLock("a", "b")
		s.wantNothing("b is preferred")
	}
}

// A nominee may release the lock before the watch delivers the nomination. This is a refusal. An older version of the lock is not.
func TestPlan_RefusalBeforeWatchEvent(t *testing.T) {
	for _, delayed := range []bool{false, true} {
		s := newScenario(t, "a", "b")
		s.alive = true
		before := s.e.Lease
		named := s.step().Lease
		named.ResourceVersion = "2"
		s.observer.wrote(s.now, "1", named)
		if delayed {
			s.e.Lease = before
			s.step()
			s.wantLock("a", "")
		}
		s.e.Lease = named
		s.release()
		s.e.Lease.ResourceVersion = "3"
		s.step()
		s.wantLock("b", "")
	}
}

// A free lock goes to the best candidate, also after a preference for it failed because the holder drained slowly.
func TestPlan_FreeLockAfterFailedPreference(t *testing.T) {
	for _, annotated := range []bool{false, true} {
		s := newScenario(t, "a", "b")
		if annotated {
			s.e.Lease.Spec.Strategy = nil
			s.e.Lease.Annotations = map[string]string{record.StrategyAnnotation: DefaultRevision}
		}
		s.alive = true
		s.e.Annotate = true
		s.step()
		s.renew()
		s.wantNothing("a leads")
		s.prioritize(1)
		s.step()
		s.wantLock("a", "b")
		s.wantNothing("b is preferred")
		s.sleep(electionDuration)
		s.renew()
		s.step()
		s.wantLock("a", "")
		s.release()
		s.step()
		s.wantLock("b", "")
		// A nominee of a leader that handed over has an acquireTime. It has not written the lock either.
		s.edit(func(l *coordinationv1.Lease) {
			l.Spec.AcquireTime = l.Spec.RenewTime
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.NominatedAnnotation, "b")
		})
		s.step()
		s.sleep(5 * time.Second)
		s.step()
		s.wantLock("a", "")
	}
}

func TestPlan_RestoresStrategy(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.step()
	s.step()
	s.renew()
	s.wantNothing("a leads")
	remove := func() { s.edit(func(l *coordinationv1.Lease) { l.Spec.Strategy = nil }) }
	remove()
	if s.step(); strategyOf(s.e.Lease) != DefaultRevision {
		t.Errorf("not restored: %+v", s.e.Lease.Spec)
	}
	s.wantLock("a", "")
	s.wantNothing("a still leads")
	remove()
	s.e.Candidates[0].Spec.Strategy = "example.com/Other"
	if p := s.step(); !errors.Is(p.Err, errStrategies) || p.Lease != nil || len(p.Ping) > 0 {
		t.Errorf("two strategies: %v", p)
	}
	s.e.Candidates[1].Spec.Strategy = "example.com/Other"
	s.wantNothing("strategy of another coordinator")
	s.e.Candidates = s.e.Candidates[1:]
	s.e.Candidates[0].Spec.Strategy = DefaultRevision
	s.wantNothing("the holder is no candidate")

	free := newScenario(t, "a")
	free.e.Lease.Spec.Strategy = nil
	free.e.Lease.Spec.HolderIdentity = new("")
	free.wantNothing("Kubernetes' coordinator restores it")
	free.sleep(electionDuration)
	if free.step(); strategyOf(free.e.Lease) != DefaultRevision {
		t.Errorf("not restored on a free lock: %+v", free.e.Lease.Spec)
	}
}

// Another strategy is replaced if the lock has no leader and the candidates request a strategy of this coordinator.
func TestPlan_ReplacesStrategyWithoutLeader(t *testing.T) {
	s := newLed(t, "a")
	s.edit(func(l *coordinationv1.Lease) { setStrategy(l, "x.y/z", true) })
	s.wantAgain("a leads", 20*time.Second)
	s.sleep(20*time.Second - 1)
	s.wantNothing("expired, Kubernetes' coordinator may write the strategy")
	s.sleep(1)
	s.step()
	if got := strategyOf(s.e.Lease); got != DefaultRevision {
		t.Errorf("strategy %s", got)
	}
	s.step()
	s.wantLock("a", "")

	s = newLed(t, "a")
	s.edit(func(l *coordinationv1.Lease) { setStrategy(l, "x.y/z", true) })
	s.e.Candidates[0].Spec.Strategy = "x.y/z"
	s.release()
	s.wantAgain("released", 5*time.Second)
	s.sleep(5 * time.Second)
	if p := s.step(); !errors.Is(p.Err, errUnknownStrategy) || p.Lease != nil {
		t.Errorf("no coordinator of the strategy: %v", p)
	}
}

func TestPlan_Errors(t *testing.T) {
	for name, hasLock := range map[string]bool{"with a lock": true, "without a lock": false} {
		s := newScenario(t, "a", "b")
		if !hasLock {
			s.e.Lease = nil
		}
		s.e.Candidates[1].Spec.Strategy = "example.com/Other"
		if p := s.step(); !errors.Is(p.Err, errStrategies) || p.Lease != nil || len(p.Ping) > 0 {
			t.Errorf("%s: %v", name, p)
		}
	}
	s := newScenario(t, "a", "b")
	s.step("a", "b")
	s.wantNothing("pinged")
	s.sleep(electionDuration)
	if p := s.step("a", "b"); !errors.Is(p.Err, errNoCandidates) || p.Lease != nil {
		t.Errorf("no answers: %v", p)
	}
	s = newLed(t, "a", "b")
	s.label(1, map[string]string{PriorityLabel: "high"})
	if p := s.step(); len(p.Invalid) != 1 || p.Lease != nil {
		t.Errorf("invalid label: %v, %v", p.Invalid, p)
	}
}

// A nominee that acquires the lock late still leads, and gets no request to hand over.
func TestPlan_LateNominee(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.alive = true
	s.step()
	s.wantLock("a", "")
	late := s.e.Lease
	s.wantNothing("a is named")
	s.sleep(electionDuration)
	s.step()
	s.wantLock("b", "") // this write conflicts
	s.e.Lease = late
	s.renew()
	s.wantNothing("a leads")
	s.sleepAndRenew("a leads", 30*time.Second)
	s.wantLock("a", "")
}

// An unfit candidate would release the lock, so no term ends for it.
func TestPlan_UnfitBest(t *testing.T) {
	s := newLed(t, "a", "b")
	s.e.Situation.DefaultRevision = "canary"
	s.label(1, map[string]string{RevisionLabel: "canary", FitLabel: "false"})
	s.sleepAndRenew("b is unfit", time.Minute)
	s.label(1, map[string]string{RevisionLabel: "canary", FitLabel: "true"})
	s.step()
	s.wantLock("a", "b")
}

// A leader that hands over writes its own lease duration. The nominee still has only an election duration.
func TestPlan_NominationLimit(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.alive = true
	s.step()
	s.edit(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = new("b")
		l.Spec.AcquireTime = l.Spec.RenewTime
		l.Spec.LeaseDurationSeconds = new(int32(16))
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.NominatedAnnotation, "b")
	})
	s.step()
	s.sleep(electionDuration - time.Millisecond)
	s.step()
	if holder := *s.e.Lease.Spec.HolderIdentity; holder != "b" {
		t.Fatalf("%s is named too early", holder)
	}
	s.sleep(time.Millisecond)
	s.step()
	s.wantLock("a", "")
}

// A renewTime of the year 9999 would be stepped into a year that JSON cannot represent.
func TestPlan_RenewTimeFarAhead(t *testing.T) {
	s := newScenario(t, "a")
	far := &metav1.MicroTime{Time: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	s.edit(func(l *coordinationv1.Lease) { l.Spec.RenewTime = far })
	s.e.Candidates[0].Spec.RenewTime = far
	s.step()
	s.step()
	s.wantLock("a", "")
	for name, got := range map[string]*metav1.MicroTime{"lock": s.e.Lease.Spec.RenewTime, "ping": s.e.Candidates[0].Spec.PingTime} {
		if !got.Time.Equal(s.wall.Truncate(time.Microsecond)) {
			t.Errorf("%s: time %v, want %v", name, got, s.wall)
		}
	}
}

// The strategy may be an annotation from an API server without the feature. An API server with the feature requires it in the spec.
func TestPlan_StrategyFromAnnotation(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.alive = true
	s.e.Lease.Spec.Strategy = nil
	s.e.Lease.Annotations = map[string]string{record.StrategyAnnotation: DefaultRevision}
	s.step()
	s.renew()
	s.prioritize(1)
	s.step()
	if spec := s.e.Lease.Spec; ptr.Deref(spec.Strategy, "") != DefaultRevision || ptr.Deref(spec.PreferredHolder, "") != "b" || len(s.e.Lease.Annotations) > 0 {
		t.Errorf("%+v", s.e.Lease)
	}
}

// If a coordinator with a faster clock withdraws a preference, the back-off for the candidate is the same.
func TestPlan_WithdrawnByOther(t *testing.T) {
	s := newLed(t, "a", "b")
	s.prioritize(1)
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
		s.step()
		s.wantLock("a", "b")
		s.wantNothing("b is preferred")
		s.sleep(electionDuration - 100*time.Millisecond)
		s.withdraw()
		s.wantNothing("withdrawn")
		s.sleepAndRenew("back-off of b", want-time.Millisecond)
		s.wantLock("a", "")
		s.sleep(time.Millisecond)
	}
	s.step()
	s.wantLock("a", "b")
	// A preference that is withdrawn earlier is a disagreement, not a failure.
	s.wantNothing("b is preferred")
	s.sleep(time.Second)
	s.withdraw()
	s.wantAgain("withdrawn early", electionDuration)
	s.sleep(electionDuration)
	s.step()
	s.wantLock("a", "b")
}

// Replicas of a Deployment can have the same creation time. The name does not end a term.
func TestPlan_SameAge(t *testing.T) {
	s := newScenario(t, "b")
	s.alive = true
	s.step()
	s.wantLock("b", "")
	other := s.e.Candidates[0].DeepCopy()
	other.Name = "a"
	s.e.Candidates = append(s.e.Candidates, other)
	s.wantNothing("b is named")
	s.renew()
	s.wantNothing("b leads")
	s.sleepAndRenew("b leads", 10*time.Second)
	s.e.Candidates[1] = other.DeepCopy()
	s.e.Candidates[1].CreationTimestamp = metav1.NewTime(other.CreationTimestamp.Add(-time.Second))
	s.step()
	s.wantLock("b", "a")
	s.e.Candidates[1] = other
	s.step()
	s.wantLock("b", "")
	s.sleep(15 * time.Second)
	s.step()
	s.wantLock("a", "") // without a holder the name decides
}

func TestPlan_Again(t *testing.T) {
	s := newLed(t, "a", "b")
	s.wantAgain("a leads", 15*time.Second)
	s.sleep(4 * time.Second)
	s.wantAgain("a leads", 11*time.Second)
	s.sleep(time.Second)
	s.renew()
	s.wantAgain("a renewed", 15*time.Second)
	s.prioritize(1)
	s.wantAgain("b is preferred", 5*time.Second)
	s.wantAgain("preference is stored", 5*time.Second)
	s.sleep(2 * time.Second)
	s.wantAgain("b is preferred", 3*time.Second)
	s.sleep(3 * time.Second)
	s.wantAgain("preference failed", 10*time.Second)
	s.renew()
	s.sleep(4 * time.Second)
	s.wantAgain("back-off", 6*time.Second)
	s.sleep(6 * time.Second)
	s.renew()
	s.wantAgain("preferred again", 5*time.Second)
	s.wantNothing("preferred again")
	s.sleep(5 * time.Second)
	s.renew()
	s.wantAgain("failed again", 15*time.Second) // the lease is shorter than the back-off
	s.label(1, nil)
	s.wantAgain("a is best", 15*time.Second)
	s.wantLock("a", "")
	s.edit(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(7)) })
	s.sleep(time.Second)
	s.wantAgain("new term with the same times", 15*time.Second)
}

func TestPlan_RefusalBackOff(t *testing.T) {
	s := newScenario(t, "a")
	s.alive = true
	s.e.Annotate = true
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		s.step()
		s.wantLock("a", "")
		s.wantNothing("a is named")
		s.release()
		s.wantAgain("a refused", want*time.Second)
		s.sleep(want*time.Second - 1)
		s.wantAgain("back-off", time.Millisecond)
		s.wantLock("", "")
		s.sleep(1)
	}
	s.step()
	s.renew()
	s.wantNothing("a leads")
	s.release()
	s.wantAgain("a released", 5*time.Second)
	s.wantLock("a", "")
	s.wantNothing("a is named without competition")
	s.release()
	s.wantAgain("a refused after it led", 10*time.Second)
}

func TestPlan_Answers(t *testing.T) {
	s := newScenario(t, "a", "b")
	if p := s.step("a"); len(p.Ping) != 2 || p.Again != 0 {
		t.Fatalf("first plan: %v, again after %v", p, p.Again)
	}
	s.wantAgain("pinged", 5*time.Second, "a")
	s.wantLock("", "")
	s.sleep(4 * time.Second)
	s.wantAgain("pinged", time.Second, "a")
	s.wantLock("", "")
	s.sleep(time.Second) // now the answer of b is too old
	if p := s.step("a"); len(p.Ping) != 1 || p.Ping[0].Name != "b" {
		t.Fatalf("a is silent: %v", p)
	}
	s.wantAgain("b answered", candidateDuration-5*time.Second, "a")
	s.wantLock("b", "")
	s.sleep(candidateDuration - 6*time.Second)
	s.renew()
	s.step("a")
	s.renew()
	if p := s.step("a"); len(p.Delete) > 0 {
		t.Errorf("deleted early: %v", p)
	}
	s.sleep(time.Second)
	if p := s.step("a"); len(p.Delete) != 1 || p.Delete[0].Name != "a" {
		t.Errorf("not deleted: %v", p)
	}
	s.label(0, nil)
	s.e.Candidates[0].UID = "other"
	if p := s.step("a"); len(p.Delete) > 0 {
		t.Errorf("a new object is deleted: %v", p)
	}
}

// String returns the plan for test failures.
func (p plan) String() string {
	names := func(all []*coordinationv1beta1.LeaseCandidate) (s []string) {
		for _, object := range all {
			s = append(s, object.Name)
		}
		slices.Sort(s)
		return s
	}
	lease := "unchanged"
	if p.Lease != nil {
		lease = fmt.Sprintf("holder %q, preferred %q", ptr.Deref(p.Lease.Spec.HolderIdentity, ""), preferredHolder(p.Lease))
	}
	return fmt.Sprintf("ping %v, delete %v, lease %s, error %v", names(p.Ping), names(p.Delete), lease, p.Err)
}

// A recreated lock is another lock: its nominee did not refuse, and its lease begins again.
func TestPlan_RecreatedLock(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.alive = true
	s.step()
	s.wantNothing("a is named")
	s.release()
	s.edit(func(l *coordinationv1.Lease) { l.UID = "recreated" })
	s.step()
	s.wantLock("a", "")
	s.renew()
	s.wantNothing("a leads")
	s.sleep(14 * time.Second)
	s.edit(func(l *coordinationv1.Lease) { l.UID = "recreated again" })
	s.wantNothing("same record, another lock")
	s.sleep(14 * time.Second)
	s.wantNothing("the lease of the other lock")
}
