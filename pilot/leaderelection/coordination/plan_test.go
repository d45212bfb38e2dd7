package coordination_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// planned is an election whose objects the test changes, and a coordinator that plans by its own clock.
type planned struct {
	t        testing.TB
	now      time.Time
	wall     time.Time
	observer coordination.Observer
	e        coordination.Election
}

func plan(t testing.TB, names ...string) *planned {
	strategy := coordinationv1.CoordinatedLeaseStrategy(coordination.DefaultRevision)
	p := &planned{t: t, now: epoch, wall: epoch}
	p.e.Lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{Strategy: &strategy},
	}
	for i, name := range names {
		at := metav1.NewMicroTime(epoch.Add(-time.Hour))
		p.e.Candidates = append(p.e.Candidates, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(i) * time.Second))},
			Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: strategy, RenewTime: &at},
		})
	}
	return p
}

// step plans, writes what is planned, and has those that are not silent answer.
func (p *planned) step(silent ...string) coordination.Plan {
	made := p.observer.Plan(p.now, p.wall, p.e, coordination.Own())
	if made.Lease != nil {
		p.e.Lease = p.stored(made.Lease)
	}
	for _, asked := range made.Ping {
		for i, c := range p.e.Candidates {
			if c.Name == asked.Name {
				p.e.Candidates[i] = coordination.Pinged(c, p.wall)
				if !strings.Contains(fmt.Sprint(silent), c.Name) {
					p.e.Candidates[i].Spec.RenewTime = p.e.Candidates[i].Spec.PingTime
				}
			}
		}
	}
	return made
}

// stored is what an API server makes of a Lease: one without the feature keeps only what a spec has had before.
func (p *planned) stored(sent *coordinationv1.Lease) *coordinationv1.Lease {
	if !p.e.Annotate {
		return sent
	}
	stored := sent.DeepCopy()
	stored.Spec.PreferredHolder = nil
	if p.e.Lease.Spec.Strategy == nil {
		stored.Spec.Strategy = nil
	}
	return stored
}

func (p *planned) pass(d time.Duration) { p.now, p.wall = p.now.Add(d), p.wall.Add(d) }

func (p *planned) is(holder, preferred string) {
	p.t.Helper()
	snap := k8sresourcelock.LeaseSnapshot(p.e.Lease)
	h, q := snap.Record.HolderIdentity, snap.PreferredHolder
	if h != holder || q != preferred {
		p.t.Errorf("holder %q, preferred %q; want %q, %q", h, q, holder, preferred)
	}
}

// claim is the holder's own write.
func (p *planned) claim() {
	l := p.e.Lease.DeepCopy()
	at, seconds := coordination.After(p.wall, l.Spec.RenewTime), int32(15)
	l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &at, &at, &seconds
	p.e.Lease = l
}

func (p *planned) quiet(what string) {
	p.t.Helper()
	if made := p.step(); made.Lease != nil || len(made.Ping)+len(made.Collect) > 0 || made.Err != nil {
		p.t.Errorf("%s: %v", what, made)
	}
}

func TestPlanNamesPrefersAndIsQuiet(t *testing.T) {
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		p := plan(t, "a", "b")
		p.wall = p.wall.Add(wrong)
		if made := p.step(); len(made.Ping) != 2 || made.Lease != nil {
			t.Fatalf("at first: %v", made)
		}
		if made := p.step(); made.Lease == nil || made.Lease.ResourceVersion != "1" || made.Lease.Spec.AcquireTime != nil || *made.Lease.Spec.LeaseDurationSeconds != 5 {
			t.Fatalf("nobody is named: %v", made)
		}
		p.is("a", "")
		p.claim()
		p.quiet("a leads")
		p.e.Candidates[1] = p.e.Candidates[1].DeepCopy()
		p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "1"}
		p.pass(10 * time.Second)
		if made := p.step(); len(made.Ping) != 2 {
			t.Fatalf("b is better, and nobody is asked: %v", made)
		}
		p.step()
		p.is("a", "b")
		p.quiet("b is waited for")
	}
}

func TestPlanClearsWhoNeverComes(t *testing.T) {
	p := plan(t, "a", "b")
	p.step()
	p.step()
	p.claim()
	p.step()
	p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "1"}
	p.pass(6 * time.Second)
	p.step()
	p.step()
	p.is("a", "b")
	p.claim()
	p.quiet("b is waited for")
	p.pass(coordination.ElectionDuration - 1)
	p.quiet("b is waited for, and not asked again")
	p.pass(1)
	p.step()
	p.is("a", "")
	p.quiet("b has not come")
	p.pass(2*coordination.ElectionDuration - 1)
	p.claim()
	p.quiet("b is left alone")
	p.pass(1)
	if made := p.step("b"); len(made.Ping) != 2 {
		t.Fatalf("b is not asked again: %v", made)
	}
	p.step("b")
	p.pass(coordination.ElectionDuration)
	p.claim()
	p.step("b")
	p.is("a", "")
	p.quiet("b is silent")
	p.pass(coordination.CandidateDuration)
	if made := p.step(); len(made.Collect) != 1 || made.Collect[0].Name != "b" {
		t.Errorf("b is not collected: %v", made)
	}
}

// A nominee that gives the lock back, or lets the nomination lapse, is not named again for a while.
func TestPlanBacksOffFromRefusals(t *testing.T) {
	for name, refuse := range map[string]func(*planned){
		"released": func(p *planned) {
			p.e.Lease = p.e.Lease.DeepCopy()
			nobody := ""
			p.e.Lease.Spec.HolderIdentity = &nobody
		},
		"lapsed": func(p *planned) { p.step(); p.pass(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(t, "a", "b")
			p.step()
			p.step()
			p.is("a", "")
			p.quiet("a is named")
			refuse(p)
			p.step()
			p.step()
			p.is("b", "")
			p.claim()
			p.step()
			p.pass(9 * time.Second)
			p.claim()
			p.quiet("a's back-off")
			p.is("b", "")
			p.pass(2 * time.Second)
			p.claim()
			if made := p.step(); len(made.Ping) != 2 {
				t.Errorf("a is not asked again: %v", made)
			}
		})
	}
}

// Another clock's times say nothing: a lease is over when it has been seen unchanged for its duration.
func TestPlanJudgesExpiryByChange(t *testing.T) {
	p := plan(t, "a", "b")
	holder, old, seconds := "b", metav1.NewMicroTime(epoch.Add(-24*time.Hour)), int32(15)
	p.e.Lease.Spec.HolderIdentity, p.e.Lease.Spec.RenewTime, p.e.Lease.Spec.AcquireTime, p.e.Lease.Spec.LeaseDurationSeconds = &holder, &old, &old, &seconds
	p.step()
	p.step()
	p.is("b", "a")
	p.quiet("a is waited for")
	p.pass(15*time.Second - time.Millisecond)
	p.step()
	p.is("b", "")
	p.pass(time.Millisecond)
	p.step()
	p.step()
	p.is("a", "")
}

// A free lock is given at once, also to one that was preferred and has not come: it was its holder that took its time.
func TestPlanNamesWhoWasWaitedFor(t *testing.T) {
	for _, form := range []string{"spec", "annotations"} {
		p := plan(t, "a", "b")
		if form == "annotations" {
			p.e.Lease.Spec.Strategy = nil
			p.e.Lease.Annotations = map[string]string{k8sresourcelock.StrategyAnnotation: coordination.DefaultRevision}
		}
		p.e.Alive, p.e.Annotate = true, true
		p.step()
		p.is("a", "")
		p.claim()
		p.quiet("a leads")
		p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "1"}
		p.step()
		snap := k8sresourcelock.LeaseSnapshot(p.e.Lease)
		if snap.PreferredHolder != "b" || p.e.Lease.Spec.PreferredHolder != nil { // which an API server without the feature drops
			t.Fatalf("%s: %+v", form, p.e.Lease)
		}
		p.quiet("b is waited for")
		p.pass(coordination.ElectionDuration)
		p.claim()
		p.step()
		if snap := k8sresourcelock.LeaseSnapshot(p.e.Lease); snap.PreferredHolder != "" {
			t.Fatalf("%s: it is waited for: %+v", form, p.e.Lease)
		}
		p.e.Lease = p.e.Lease.DeepCopy()
		p.e.Lease.Spec.HolderIdentity = new("")
		p.step()
		p.is("b", "")
		// A nominee of a leader that handed over has not written itself either.
		p.e.Lease = p.e.Lease.DeepCopy()
		p.e.Lease.Spec.AcquireTime = p.e.Lease.Spec.RenewTime
		metav1.SetMetaDataAnnotation(&p.e.Lease.ObjectMeta, k8sresourcelock.NominatedAnnotation, "b")
		p.step()
		p.pass(5 * time.Second)
		p.step()
		p.is("a", "")
	}
}

// One that gave the lock up stops, or has failed: another is named first, and it is if there is none.
func TestPlanNamesAnotherThanWhoGaveUp(t *testing.T) {
	for names, want := range map[string]string{"a b": "b", "a": "a"} {
		p := plan(t, strings.Fields(names)...)
		p.e.Alive, p.e.Annotate = true, true
		p.step()
		p.claim()
		p.quiet("a leads")
		p.e.Lease = p.e.Lease.DeepCopy()
		p.e.Lease.Spec.HolderIdentity = new("")
		p.step()
		p.is(want, "")
		p.claim()
		p.pass(coordination.ElectionDuration)
		p.claim()
		p.step()
		if want == "b" {
			p.is("b", "a") // who is older goes first, now that it is there after all
		}
	}
}

// Two coordinators that disagree change a preference once in an election duration.
func TestPlanDoesNotContend(t *testing.T) {
	p := plan(t, "a", "b", "c")
	p.e.Alive, p.e.Annotate = true, true
	p.step()
	p.claim()
	p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "1"}
	p.step()
	p.is("a", "b")
	p.e.Lease = p.e.Lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.e.Lease.ObjectMeta, k8sresourcelock.PreferredHolderAnnotation, "c")
	p.quiet("another one prefers c")
	p.is("a", "c")
}

// A strategy that was wiped is written again where a candidate leads, and not beside one that wipes it with each renewal.
func TestPlanWritesAWipedStrategy(t *testing.T) {
	p := plan(t, "a", "b")
	p.step()
	p.step()
	p.claim()
	p.quiet("a leads")
	wipe := func() { p.e.Lease = p.e.Lease.DeepCopy(); p.e.Lease.Spec.Strategy = nil }
	wipe()
	if p.step(); p.e.Lease.Spec.Strategy == nil || *p.e.Lease.Spec.Strategy != coordination.DefaultRevision {
		t.Errorf("it was wiped: %+v", p.e.Lease.Spec)
	}
	p.is("a", "")
	p.quiet("a leads on")
	wipe()
	p.e.Candidates[0].Spec.Strategy = "example.com/Other"
	if made := p.step(); !errors.Is(made.Err, coordination.ErrStrategies) || made.Lease != nil || len(made.Ping) > 0 {
		t.Errorf("two strategies are asked for: %v", made)
	}
	p.e.Candidates[1].Spec.Strategy = "example.com/Other"
	p.quiet("another's is asked for")
	p.e.Candidates = p.e.Candidates[1:]
	p.e.Candidates[0].Spec.Strategy = coordination.DefaultRevision
	p.quiet("one that is no candidate leads")
}

func TestPlanLeavesAlone(t *testing.T) {
	for name, change := range map[string]func(*coordination.Election){
		"no lock":         func(e *coordination.Election) { e.Lease = nil },
		"no strategy":     func(e *coordination.Election) { e.Lease.Spec.Strategy = nil },
		"another's":       func(e *coordination.Election) { *e.Lease.Spec.Strategy = "example.com/Other" },
		"Kubernetes' own": func(e *coordination.Election) { *e.Lease.Spec.Strategy = coordinationv1.OldestEmulationVersion },
		"an empty spec":   func(e *coordination.Election) { e.Lease.Spec = coordinationv1.LeaseSpec{} },
		"nobody":          func(e *coordination.Election) { e.Candidates = nil },
		"another strategy": func(e *coordination.Election) {
			e.Candidates[0].Spec.Strategy, e.Candidates[0].Spec.BinaryVersion = "example.com/Other", "2.0.0"
		},
	} {
		p := plan(t, "a", "b")
		change(&p.e)
		p.quiet(name)
	}
	p := plan(t, "a", "b")
	p.e.Candidates[0].Spec.Strategy = "example.com/Other"
	if made := p.step(); !errors.Is(made.Err, coordination.ErrStrategies) || made.Lease != nil || len(made.Ping) > 0 {
		t.Errorf("two strategies: %v", made)
	}
}
