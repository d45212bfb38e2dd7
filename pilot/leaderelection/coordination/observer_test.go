package coordination

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func microTime(after time.Duration) *metav1.MicroTime {
	return &metav1.MicroTime{Time: epoch.Add(after)}
}

func TestIsPinged(t *testing.T) {
	for name, c := range map[string]struct {
		pinged, renewed *metav1.MicroTime
		want            bool
	}{
		"never":       {nil, microTime(0), false},
		"not renewed": {microTime(0), nil, true},
		"later":       {microTime(time.Second), microTime(0), true},
		"answered":    {microTime(0), microTime(0), false},
	} {
		if isPinged(coordinationv1beta1.LeaseCandidateSpec{PingTime: c.pinged, RenewTime: c.renewed}) != c.want {
			t.Errorf("%s: pinged %v", name, !c.want)
		}
	}
}

// A ping of another coordinator starts the time to answer, also if the clock of that coordinator is behind.
func TestUpdate_PingedByOther(t *testing.T) {
	object := newScenario(t, "a").e.Candidates[0]
	c := (*candidateState)(nil).update(epoch, object)
	ping := object.DeepCopy()
	ping.Spec.PingTime = microTime(-24 * time.Hour)
	later := epoch.Add(time.Minute)
	if c = c.update(later, ping); !c.unanswered || !c.askedAt.Equal(later) {
		t.Errorf("%+v", c)
	}
}

// An own write counts once, from when it was sent.
func TestObserver_OwnWrite(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.step()
	s.step()
	s.wantLock("a", "")
	s.observer.wrote(s.now, "1", s.e.Lease)
	s.edit(func(l *coordinationv1.Lease) { l.ResourceVersion = "2" })
	s.renew()
	s.step()
	since := s.observer.since
	s.sleep(time.Second)
	if s.step(); !s.observer.since.Equal(since) {
		t.Errorf("the state of the lock began %v later", s.observer.since.Sub(since))
	}
	s.edit(func(l *coordinationv1.Lease) { setPreferredHolder(l, "b", false) })
	if s.observer.wrote(s.now, "2", s.e.Lease); s.observer.preference != (preference{name: "b", since: s.now}) {
		t.Errorf("%+v", s.observer.preference)
	}
	s.edit(clearPreferredHolder)
	if s.observer.wrote(s.now, "3", s.e.Lease); s.observer.preference != (preference{}) {
		t.Errorf("%+v", s.observer.preference)
	}
}

// The back-off after a failed preference ends when the holder changes.
func TestObserveLock_EndsSkip(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.step()
	s.step()
	s.wantLock("a", "")
	s.renew()
	s.step()
	s.observer.skip(s.now, "b")
	s.renew()
	if s.step(); s.observer.candidates["b"].skipped == (backOff{}) {
		t.Error("a renewal ends the back-off")
	}
	s.edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("b") })
	if s.step(); s.observer.candidates["b"].skipped != (backOff{}) {
		t.Error("the back-off continues with the next holder")
	}
}

// A candidate that released the lock is available again after an election duration.
func TestAvailable_AfterRelease(t *testing.T) {
	s := newScenario(t, "a", "b")
	s.step()
	for since, want := range map[time.Duration]int{electionDuration - 1: 1, electionDuration: 2} {
		s.observer.candidates["a"].releasedAt = s.now.Add(-since)
		if got := s.observer.available(s.now, s.e, &plan{}); len(got) != want {
			t.Errorf("%v after the release %d candidates are available, want %d", since, len(got), want)
		}
	}
}

// Without a lock and a candidate that may be named there is nothing to report.
func TestPlan_NoLockNoCandidate(t *testing.T) {
	s := newScenario(t, "a")
	s.step()
	s.observer.candidates["a"].refused.until = s.now.Add(time.Minute)
	s.e.Lease = nil
	if p := s.step(); p.Err != nil || p.Lease != nil {
		t.Errorf("%v, %v", p.Err, p.Lease)
	}
}
