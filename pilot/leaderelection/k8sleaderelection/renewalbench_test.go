package k8sleaderelection

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// BenchmarkRenewalSeen measures what a follower does with each renewal that its watch shows. The watch event's object
// is decoded already.
func BenchmarkRenewalSeen(b *testing.B) {
	l := stillLoop(b, locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker)
	l.pass(&event{news: &k8sresourcelock.News{Kind: k8sresourcelock.Up}})
	lease := renewedLease()
	b.ReportAllocs()
	for i := range b.N {
		lease.ResourceVersion = strconv.Itoa(1000 + i)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Second)}
		l.pass(&event{news: &k8sresourcelock.News{Kind: k8sresourcelock.Changed, Snapshot: k8sresourcelock.LeaseSnapshot(lease)}})
	}
	if l.state.Phase != core.Following || l.state.Snap.Version != uint64(999+b.N) {
		b.Fatalf("it is %v and has seen %d", l.state.Phase, l.state.Snap.Version)
	}
}

// renewedLease is a lock that another holds, as an API server shows it.
func renewedLease() *coordinationv1.Lease {
	holder, seconds, transitions, began := "another", int32(30), int32(3), metav1.MicroTime{Time: time.Unix(1_700_000_000, 0)}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "e", UID: "1", Annotations: map[string]string{
				k8sresourcelock.LeaseHolderKey: "stable", k8sresourcelock.MarkerAnnotation: "v1 another 3 handover",
			},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions, AcquireTime: &began, RenewTime: &began},
	}
}
