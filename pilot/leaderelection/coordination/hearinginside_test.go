package coordination

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Where coordinator and leader end together, the next coordinator counts the leader's lease from when it has seen it renewed, and
// not from the beginning of its own term.
func TestTheNextCoordinatorHasSeenTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		strategy, holder, seconds := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision), "a", int32(15)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"},
			Spec:       coordinationv1.LeaseSpec{Strategy: &strategy, HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &metav1.MicroTime{}, RenewTime: &metav1.MicroTime{}},
		}
		e := Election{Lease: lease, Alive: true, Candidates: []*coordinationv1beta1.LeaseCandidate{{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: strategy},
		}}}
		named := func(o *Observer) string {
			p := o.Plan(time.Now(), time.Now(), e, Own())
			if p.Lease == nil {
				return ""
			}
			return *p.Lease.Spec.HolderIdentity
		}
		c := &Controller{heard: newHearing()}
		handler := c.changed()
		handler.OnAdd(lease, true)
		time.Sleep(14 * time.Second)
		handler.OnUpdate(lease, lease) // a relist, in which nothing is new
		if got := named(c.heard.observer("x")); got != "a" {
			t.Errorf("after 14 s %q holds it, and a's lease is 15 s", got)
		}
		time.Sleep(time.Second)
		if got := named(c.heard.observer("x")); got != "b" {
			t.Errorf("after the lease %q holds it", got)
		}
		if got := named(&Observer{}); got != "a" {
			t.Errorf("by one that has seen nothing %q holds it", got)
		}
		renewed := lease.DeepCopy()
		renewed.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		handler.OnUpdate(lease, renewed)
		e.Lease = renewed
		if got := named(c.heard.observer("x")); got != "a" {
			t.Errorf("a has renewed, and %q holds it", got)
		}
		handler.OnDelete(renewed)
		if o := c.heard.observer("x"); o.lease != (leaseState{}) || len(c.heard.locks) > 0 {
			t.Errorf("of a lock that is gone it knows %+v", o.lease)
		}
		handler.OnUpdate(lease, renewed)
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/x", Obj: renewed})
		if len(c.heard.locks) > 0 {
			t.Errorf("of a lock that was missed to go it knows %+v", c.heard.locks)
		}
	})
}
