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
	w := &CandidateWatch{changed: func() {}, members: map[string]members.Member{}}
	name := members.LeaseName("a")
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{members.Label: members.LabelValue},
			Annotations: map[string]string{members.StateAnnotation: `{"revision":"stable","cluster":"local","elections":[]}`},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(90)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-time.Hour)},
		},
	}
	for _, late := range []bool{true, false} {
		w.update(lease)
		if w.members[name].Late(time.Now(), time.Minute) != late {
			t.Errorf("late: %v", !late)
		}
	}
}
