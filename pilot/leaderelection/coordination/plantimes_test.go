package coordination_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// again plans, writes and wants to be called after that long at the latest.
func (p *planned) again(what string, want time.Duration, silent ...string) {
	p.t.Helper()
	if made := p.step(silent...); made.Again != want {
		p.t.Errorf("%s: again after %v, want %v (%v)", what, made.Again, want, made)
	}
}

// leads has the holder write itself, and renew, with nobody better.
func led(t *testing.T, names ...string) *planned {
	p := plan(t, names...)
	p.e.Alive, p.e.Annotate = true, true
	p.step()
	p.claim()
	return p
}

// prioritize makes a candidate better than all others.
func (p *planned) prioritize(i int) {
	p.e.Candidates[i] = p.e.Candidates[i].DeepCopy()
	p.e.Candidates[i].Labels = map[string]string{coordination.PriorityLabel: "1"}
}

// Beside a live holder the next plan is due when its lease ends, and earlier when a preference stands or somebody is left alone.
func TestPlanIsDueWhenALeaseEnds(t *testing.T) {
	p := led(t, "a", "b")
	p.again("a leads", 15*time.Second)
	p.pass(4 * time.Second)
	p.again("a leads on", 11*time.Second)
	p.pass(time.Second)
	p.claim()
	p.again("a has renewed", 15*time.Second)
	p.prioritize(1)
	p.again("b is preferred", 5*time.Second)
	p.again("the preference stands", 5*time.Second)
	p.pass(2 * time.Second)
	p.again("b is waited for", 3*time.Second)
	p.pass(3 * time.Second)
	p.again("b has not come", 10*time.Second)
	p.claim()
	p.pass(4 * time.Second)
	p.again("b is left alone", 6*time.Second)
	p.pass(6 * time.Second)
	p.claim()
	p.again("b is preferred again", 5*time.Second)
	p.quiet("b is waited for again")
	p.pass(5 * time.Second)
	p.claim()
	p.again("b has not come again", 15*time.Second) // the lease, as b's back-off is longer
	for range 5 {
		p.pass(5 * time.Second)
		p.claim()
		p.step()
	}
	p.is("a", "b") // 20 s have passed
	p.e.Candidates[1].Labels = nil
	p.again("a is best again", 15*time.Second)
	p.is("a", "")
	p.quiet("nobody is preferred")
}

// Who does not come, again and again, is left alone for longer and longer, up to five minutes.
func TestPlanBacksOffFromOneThatNeverComes(t *testing.T) {
	p := led(t, "a", "b")
	p.prioritize(1)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		p.claim()
		p.step()
		p.is("a", "b")
		p.quiet("b is waited for")
		p.pass(coordination.ElectionDuration)
		p.claim()
		p.step()
		p.is("a", "")
		p.quiet("b has not come")
		for left := want*time.Second - time.Second; left > 0; left -= 10 * time.Second {
			p.pass(min(left, 10*time.Second))
			p.claim()
			p.quiet("b is left alone")
		}
		p.is("a", "")
		p.pass(time.Second)
	}
	// A new holder begins anew.
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.Spec.HolderIdentity = new("c")
	p.claim()
	p.step()
	p.is("c", "b")
}

// One that refuses, again and again, is not named for longer and longer; one that has led begins anew.
func TestPlanBacksOffFromOneThatRefuses(t *testing.T) {
	p := plan(t, "a")
	p.e.Alive, p.e.Annotate = true, true
	refuse := func() {
		p.e.Lease = p.e.Lease.DeepCopy()
		p.e.Lease.Spec.HolderIdentity = new("")
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		p.step()
		p.is("a", "")
		p.quiet("a is named")
		refuse()
		p.again("a has refused", want*time.Second)
		p.pass(want*time.Second - 1)
		p.again("a is left alone", time.Millisecond)
		p.is("", "")
		p.pass(1)
	}
	p.step()
	p.claim()
	p.quiet("a leads")
	refuse()
	p.again("a has given up", 5*time.Second)
	p.is("a", "")
	p.quiet("a is named, as there is no other")
	refuse()
	p.again("a refuses, and has led since it did before", 10*time.Second)
}

// Those that are asked are waited for as long as an answer may take, and collected half an hour later.
func TestPlanWaitsForAnswers(t *testing.T) {
	p := plan(t, "a", "b")
	if made := p.step("a"); len(made.Ping) != 2 || made.Again != 0 {
		t.Fatalf("at first: %v, again after %v", made, made.Again)
	}
	p.again("a is asked", 5*time.Second, "a")
	p.is("", "")
	p.pass(4 * time.Second)
	p.again("a is still asked", time.Second, "a")
	p.is("", "")
	p.pass(time.Second) // b's answer is five seconds old as well
	if made := p.step("a"); len(made.Ping) != 1 || made.Ping[0].Name != "b" {
		t.Fatalf("a is silent: %v", made)
	}
	p.again("b has answered", 25*time.Minute+55*time.Second+4*time.Minute, "a")
	p.is("b", "")
	p.pass(coordination.CandidateDuration - 6*time.Second)
	p.claim()
	p.step("a")
	p.claim()
	if made := p.step("a"); len(made.Collect) > 0 {
		t.Errorf("a is collected early: %v", made)
	}
	p.pass(time.Second)
	if made := p.step("a"); len(made.Collect) != 1 || made.Collect[0].Name != "a" {
		t.Errorf("a is not collected: %v", made)
	}
	// Another object of that name has a time of its own.
	p.e.Candidates[0] = p.e.Candidates[0].DeepCopy()
	p.e.Candidates[0].UID = "another"
	if made := p.step("a"); len(made.Collect) > 0 {
		t.Errorf("one that has just come is collected: %v", made)
	}
}

// What another Lease of that name was, or another object of a candidate's, says nothing about this one.
func TestPlanForgetsWhatIsGone(t *testing.T) {
	p := plan(t, "a", "b")
	p.e.Alive, p.e.Annotate = true, true
	p.step()
	p.is("a", "")
	p.quiet("a is named")
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.UID, p.e.Lease.Spec.HolderIdentity = "another", new("")
	p.step()
	p.is("a", "") // which has refused nothing
	p.claim()
	p.quiet("a leads")
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.UID, p.e.Lease.Spec.HolderIdentity = "a third", new("")
	p.step()
	p.is("a", "") // nor given up
}

// A renewal is any change of the term: of its count as well.
func TestPlanSeesATermBegin(t *testing.T) {
	p := led(t, "a")
	p.again("a leads", 15*time.Second)
	p.pass(10 * time.Second)
	p.e.Lease = p.e.Lease.DeepCopy()
	p.e.Lease.Spec.LeaseTransitions = new(int32(7))
	p.again("a new term, of the same time", 15*time.Second)
	// A nominee of a former leader is one until it has written itself.
	p.e.Lease = p.e.Lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.e.Lease.ObjectMeta, k8sresourcelock.NominatedAnnotation, "a")
	p.pass(time.Second)
	later := metav1.NewMicroTime(p.e.Lease.Spec.RenewTime.Add(time.Second))
	p.e.Lease.Spec.RenewTime = &later
	p.again("one that has been nominated, and has renewed since", 15*time.Second)
	p.pass(15 * time.Second)
	p.step()
	if p.e.Lease.Spec.AcquireTime != nil {
		t.Error("it is left alone as one that did not come")
	}
}

// Labels that cannot be read are told, and count as absent.
func TestPlanTellsOfUnreadableLabels(t *testing.T) {
	p := led(t, "a", "b")
	p.e.Candidates[1] = p.e.Candidates[1].DeepCopy()
	p.e.Candidates[1].Labels = map[string]string{coordination.PriorityLabel: "high"}
	if made := p.step(); len(made.Unreadable) != 1 || made.Lease != nil {
		t.Errorf("it says %v of it, %v", made.Unreadable, made)
	}
}

func TestVersionIsOneThatACandidateCanCarry(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "1.2.3-rc.1+build": "1.2.3-rc.1+build", "v0.0.0-20261123142546-43643c5aaaaa+dirty": "0.0.0-20261123142546-43643c5aaaaa+dirty",
		"(devel)": "0.0.0", "": "0.0.0", "1.2": "0.0.0", "01.2.3": "0.0.0", "1.02.3": "0.0.0", " 1.2.3": "0.0.0", "1.2.3 ": "0.0.0", "vv1.2.3": "0.0.0", "1.2.x": "0.0.0", "1..3": "0.0.0",
	} {
		if got := coordination.Version(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
