package coordination_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// One that takes its nomination later than it is waited for leads all the same, and is not to hand over because it was late.
func TestPlanKeepsOneThatCameLate(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Alive = true
	p.step()
	p.is("a", "")
	late := p.e.Lease
	p.quiet("a is waited for")
	p.pass(coordination.ElectionDuration)
	p.step()
	p.is("b", "") // and that write loses the race
	p.e.Lease = late
	p.claim()
	for range 30 {
		p.quiet("a leads")
		p.pass(time.Second)
		p.claim()
	}
	p.is("a", "")
}

// The only candidate gives the lock up and takes it again; a worse one that comes then is not preferred to it.
func TestPlanForgetsThatOneGaveUpWhenItLeads(t *testing.T) {
	p := plan(t, "a")
	p.e.Alive = true
	p.step()
	p.claim()
	p.quiet("a leads")
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.Spec.HolderIdentity = new("")
	p.step()
	p.is("a", "")
	p.claim()
	p.quiet("a leads again")
	p.e.Candidates = append(p.e.Candidates, plan(t, "a", "b").e.Candidates[1])
	p.quiet("b is worse")
	p.is("a", "")
}

// One that would rather not lead gives the lock back: no holder's term is ended for it, and a free lock is tried with it, in its turn.
func TestPlanEndsNoTermForTheUnfit(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Alive = true
	p.e.Situation.DefaultRevision = "canary"
	p.e.Candidates[1].Labels = map[string]string{coordination.RevisionLabel: "canary", coordination.FitLabel: "false"}
	holder, at, seconds := "a", metav1.NewMicroTime(p.wall), int32(15)
	p.e.Lease.Spec.HolderIdentity, p.e.Lease.Spec.RenewTime, p.e.Lease.Spec.AcquireTime, p.e.Lease.Spec.LeaseDurationSeconds = &holder, &at, &at, &seconds
	for range 5 {
		p.quiet("b is unfit")
		p.claim()
		p.pass(time.Minute)
	}
	p.claim()
	p.e.Candidates[1].Labels[coordination.FitLabel] = "true"
	p.step()
	p.is("a", "b")
}

// Where candidates ask for two strategies Kubernetes' controller makes no lock, and nobody else says why.
func TestPlanSaysWhyThereIsNoLock(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Lease = nil
	p.quiet("the lock is not there yet")
	p.e.Candidates[1].Spec.Strategy = "example.com/Other"
	if made := p.step(); !errors.Is(made.Err, coordination.ErrStrategies) {
		t.Errorf("two strategies are asked for: %v", made)
	}
}

// A leader that hands over writes a lease as long as its own; who has not come after an election duration is not coming.
func TestPlanWaitsForANomineeNoLongerThanForItsOwn(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Alive = true
	p.step()
	p.e.Lease = p.e.Lease.DeepCopy()
	seconds := int32(16)
	p.e.Lease.Spec.HolderIdentity, p.e.Lease.Spec.AcquireTime, p.e.Lease.Spec.LeaseDurationSeconds = new("b"), p.e.Lease.Spec.RenewTime, &seconds
	metav1.SetMetaDataAnnotation(&p.e.Lease.ObjectMeta, k8sresourcelock.NominatedAnnotation, "b")
	p.step()
	p.pass(coordination.ElectionDuration - time.Millisecond)
	p.step()
	if who := *p.e.Lease.Spec.HolderIdentity; who != "b" {
		t.Fatalf("%s is named before b has had the time to come", who)
	}
	p.pass(time.Millisecond)
	p.step()
	p.is("a", "")
}

// After an API server without the feature the strategy stands in an annotation. One with it takes a preferred holder beside a strategy in the spec alone.
func TestPlanPrefersInSpecWhereTheStrategyWasAnnotated(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Alive = true // of LeaseCandidates that have all answered just now it is the same
	p.e.Lease.Spec.Strategy = nil
	p.e.Lease.Annotations = map[string]string{k8sresourcelock.StrategyAnnotation: coordination.DefaultRevision}
	p.step()
	p.claim()
	p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "1"}
	p.step()
	spec := p.e.Lease.Spec
	if spec.Strategy == nil || *spec.Strategy != coordination.DefaultRevision || spec.PreferredHolder == nil || *spec.PreferredHolder != "b" {
		t.Errorf("the API server refuses %+v", spec)
	}
	if len(p.e.Lease.Annotations) > 0 {
		t.Errorf("beside it stands %v", p.e.Lease.Annotations)
	}
}

// A free lock gets its strategy from Kubernetes' controller; where none does that for an election duration, from ours.
func TestPlanWritesTheStrategyWhereNobodyElseDoes(t *testing.T) {
	p := plan(t, "a")
	p.e.Lease.Spec.Strategy, p.e.Lease.Spec.HolderIdentity = nil, new("")
	p.quiet("it is another's to write")
	p.pass(coordination.ElectionDuration)
	if p.step(); p.e.Lease.Spec.Strategy == nil || *p.e.Lease.Spec.Strategy != coordination.DefaultRevision {
		t.Errorf("nobody writes it: %+v", p.e.Lease.Spec)
	}
}

// A free lock for which everybody is silent is said once, not just left.
func TestPlanSaysThatAllAreSilent(t *testing.T) {
	p := plan(t, "a", "b")
	p.step("a", "b") // asks, and nobody answers
	p.quiet("they are waited for")
	p.pass(coordination.ElectionDuration)
	if made := p.step("a", "b"); !errors.Is(made.Err, coordination.ErrNoCandidates) || made.Lease != nil {
		t.Errorf("nobody answers: %v", made)
	}
}

// Of two coordinators the one with the faster clock withdraws each preference. The other one is to leave alone who did not come for as
// long, or it would have the holder end its term for that one every few seconds.
func TestPlanSparesOneThatDidNotComeForAnother(t *testing.T) {
	p := led(t, "a", "b")
	p.prioritize(1)
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
		p.step()
		p.is("a", "b")
		p.quiet("b is waited for")
		p.pass(coordination.ElectionDuration - 100*time.Millisecond)
		withdraw(p)
		p.quiet("b has not come, says another")
		for left := want - time.Millisecond; left > 0; left -= 10 * time.Second {
			p.pass(min(left, 10*time.Second))
			p.claim()
			p.quiet("b is left alone")
		}
		p.is("a", "")
		p.pass(time.Millisecond)
	}
	p.step()
	p.is("a", "b")
}

// Two coordinators that disagree on who is best say nothing about whether that one would come.
func TestPlanSparesNobodyForADisagreement(t *testing.T) {
	p := led(t, "a", "b")
	p.prioritize(1)
	p.step()
	p.is("a", "b")
	p.quiet("b is waited for")
	p.pass(time.Second)
	withdraw(p)
	p.again("another one prefers nobody", coordination.ElectionDuration)
	p.pass(coordination.ElectionDuration)
	p.step()
	p.is("a", "b")
}

// withdraw is another coordinator's write by which nobody is preferred, beside a renewal.
func withdraw(p *planned) {
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.Spec.PreferredHolder = nil
	delete(p.e.Lease.Annotations, k8sresourcelock.PreferredHolderAnnotation)
	p.claim()
}

// Two replicas of one Deployment are made within a second, and a creation time tells whole seconds. The first that has published itself is named before
// the other has; that one's name is no reason to end a term.
func TestPlanEndsNoTermForAName(t *testing.T) {
	p := plan(t, "b")
	p.e.Alive = true
	p.step()
	p.is("b", "")
	other := p.e.Candidates[0].DeepCopy()
	other.Name = "a"
	p.e.Candidates = append(p.e.Candidates, other)
	p.quiet("b is named")
	p.claim()
	p.quiet("b leads")
	p.pass(10 * time.Second)
	p.claim()
	p.quiet("b leads on")
	p.e.Candidates[1] = other.DeepCopy()
	p.e.Candidates[1].CreationTimestamp = metav1.NewTime(other.CreationTimestamp.Add(-time.Second))
	p.step()
	p.is("b", "a") // who is older
	p.e.Candidates[1] = other
	p.step()
	p.is("b", "")
	p.pass(15 * time.Second)
	p.step()
	p.is("a", "") // of two for a lease that is over, the name decides
}
