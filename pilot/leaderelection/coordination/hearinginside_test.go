package coordination

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/members"
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

func candidateOf(name string) *coordinationv1beta1.LeaseCandidate {
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: DefaultRevision},
	}
}

// A nominee can have given the lock back before the coordinator looks at its own nomination. It is left alone all the same, and the
// next one is named; and a cache that is behind the nomination says nothing about the nominee.
func TestARefusalThatComesBeforeTheNominationIsSeen(t *testing.T) {
	strategy, now := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision), time.Unix(1_780_000_000, 0)
	free := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{Strategy: &strategy}}
	for _, behind := range []bool{false, true} {
		e := Election{Lease: free, Alive: true, Candidates: []*coordinationv1beta1.LeaseCandidate{candidateOf("a"), candidateOf("b")}}
		var o Observer
		named := o.Plan(now, now, e, Own()).Lease
		if named == nil || value(named.Spec.HolderIdentity) != "a" {
			t.Fatalf("named: %+v", named)
		}
		named.ResourceVersion = "2"
		o.wrote(now, "1", named)
		if behind {
			if p := o.Plan(now, now, e, Own()); p.Lease == nil || value(p.Lease.Spec.HolderIdentity) != "a" {
				t.Errorf("what was there before the nomination counts as a refusal: %v", p)
			}
		}
		refused := named.DeepCopy()
		refused.ResourceVersion, refused.Spec.HolderIdentity = "3", new("")
		e.Lease = refused
		if p := o.Plan(now, now, e, Own()); p.Lease == nil || value(p.Lease.Spec.HolderIdentity) != "b" {
			t.Errorf("a has refused: %v", p)
		}
	}
}

// What went while nobody watched concerns the election that it was of.
func TestACandidateThatWasMissedToGo(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	c := &Controller{heard: newHearing(), queue: queue}
	c.changed().OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a.x", Obj: candidateOf("a.x")})
	if queue.Len() != 1 {
		t.Fatalf("%d elections are looked at", queue.Len())
	}
	if name, _ := queue.Get(); name != "x" {
		t.Errorf("%q is looked at", name)
	}
}

// When LeaseCandidates begin to be served, those who have published themselves first are not the best for that.
func TestCandidatesHaveTimeToPublishThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://nothing.is.sent"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{
			Client: client, Namespace: "n", Logger: slog.New(slog.DiscardHandler), Situation: func() (Situation, bool) { return Situation{}, true },
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &work{Controller: c}
		candidates := func() (names []string, again time.Duration) {
			e, again := w.election("x", Situation{})
			for _, candidate := range e.Candidates {
				names = append(names, candidate.Name)
			}
			slices.Sort(names)
			return names, again
		}
		for _, pod := range []string{"a", "b"} {
			const state = `{"revision":"stable","cluster":"local","version":"1.0.0","elections":[{"name":"x","candidate":true,"warm":true,"fit":true,"strategy":"` +
				DefaultRevision + `"}]}`
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{
					Name: members.LeaseName(pod), Namespace: "n", Labels: map[string]string{members.Label: members.LabelValue},
					Annotations: map[string]string{members.StateAnnotation: state},
				},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: &pod, LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
			}
			c.heard.note(lease)
			if err := c.leases.GetIndexer().Add(lease); err != nil {
				t.Fatal(err)
			}
		}
		c.served(apierrors.NewNotFound(schema.GroupResource{}, ""))
		if names, _ := candidates(); !slices.Equal(names, []string{"a.x", "b.x"}) {
			t.Errorf("without LeaseCandidates: %v", names)
		}
		c.served(nil)
		if err := c.candidates.GetIndexer().Add(candidateOf("b.x")); err != nil {
			t.Fatal(err)
		}
		names, again := candidates()
		if !slices.Equal(names, []string{"a.x", "b.x"}) || again <= 0 || again > publishing {
			t.Errorf("b alone has published itself: %v, again after %v", names, again)
		}
		time.Sleep(publishing)
		if names, again := candidates(); !slices.Equal(names, []string{"b.x"}) || again != 0 {
			t.Errorf("all have had the time: %v, again after %v", names, again)
		}
	})
}
