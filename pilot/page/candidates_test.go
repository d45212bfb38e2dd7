package page

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// A member whose clock is slow is late only until the page sees a change of its Lease.
func TestCandidateWatch_SlowClock(t *testing.T) {
	changes := 0
	w := &CandidateWatch{changed: func() { changes++ }}
	name := members.LeaseName("a")
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: "1", Labels: map[string]string{members.Label: members.LabelValue},
			Annotations: map[string]string{members.StateAnnotation: `{"revision":"stable","cluster":"local","elections":[]}`},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(90)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-time.Hour)},
		},
	}
	if w.ByLock(time.Now()) != nil {
		t.Error("candidates before the first list")
	}
	for _, late := range []bool{true, false} {
		w.update([]*coordinationv1.Lease{lease})
		if w.members[name].Late(time.Now(), time.Minute) != late {
			t.Errorf("late: %v", !late)
		}
		before := w.members[name].Renewed
		w.update([]*coordinationv1.Lease{lease}) // after a change of another Lease
		if !w.members[name].Renewed.Equal(before) {
			t.Error("an unchanged Lease is renewed")
		}
		lease = lease.DeepCopy()
		lease.ResourceVersion = "2"
	}
	lease.Annotations = nil
	lease.ResourceVersion = "3"
	if w.update([]*coordinationv1.Lease{lease}); len(w.members) != 0 || w.ByLock(time.Now()) == nil || changes != 5 {
		t.Errorf("members %v after %d changes", w.members, changes)
	}
}
