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

func candidateOf(name string) *coordinationv1beta1.LeaseCandidate {
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: DefaultRevision},
	}
}

// controllerOf returns a Controller that is not started.
func controllerOf(t *testing.T, config *rest.Config) *Controller {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Client: client, Namespace: "n", Logger: slog.New(slog.DiscardHandler),
		Situation: func() (Situation, bool) { return Situation{DefaultRevision: "r"}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A new term counts the leader's lease from when the process saw its last renewal, also before the term.
func TestSightings_LeaseAgeBeforeTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"},
			Spec: coordinationv1.LeaseSpec{
				Strategy: new(coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)), HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(15)),
				AcquireTime: microTime(0), RenewTime: microTime(time.Second),
			},
		}
		e := election{Lease: lease, Alive: true, Candidates: []*coordinationv1beta1.LeaseCandidate{candidateOf("b")}}
		c := &Controller{seen: newSightings()}
		wantHolder := func(when string, o *observer, want string) {
			t.Helper()
			got := ""
			if p := o.plan(time.Now(), time.Now(), e, Own()); p.Lease != nil {
				got = *p.Lease.Spec.HolderIdentity
			}
			if got != want {
				t.Errorf("%s: planned holder %q, want %q", when, got, want)
			}
		}
		handler := c.eventHandler()
		handler.OnAdd(lease, true)
		time.Sleep(14 * time.Second)
		handler.OnUpdate(lease, lease) // a resync
		wantHolder("after 14 s of 15 s", c.seen.observer("x"), "a")
		time.Sleep(time.Second)
		wantHolder("after the lease", c.seen.observer("x"), "b")
		wantHolder("new observer", &observer{}, "a")
		renewed := lease.DeepCopy()
		renewed.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		handler.OnUpdate(lease, renewed)
		e.Lease = renewed
		wantHolder("after a renewal", c.seen.observer("x"), "a")
		handler.OnDelete(renewed)
		if o := c.seen.observer("x"); o.lease != (leaseState{}) || len(c.seen.leases) > 0 {
			t.Errorf("state of a deleted lock: %+v", o.lease)
		}
		handler.OnUpdate(lease, renewed)
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/x", Obj: renewed})
		if len(c.seen.leases) > 0 {
			t.Errorf("state of a lock whose deletion was missed: %+v", c.seen.leases)
		}
	})
}

func TestEventHandler_MissedDeletion(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	c := &Controller{seen: newSightings(), queue: queue}
	c.eventHandler().OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a.x", Obj: candidateOf("a.x")})
	if queue.Len() != 1 {
		t.Fatalf("%d elections enqueued", queue.Len())
	}
	if name, _ := queue.Get(); name != "x" {
		t.Errorf("%q enqueued", name)
	}
}

func memberLease(t *testing.T, c *Controller, pod, state string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: members.LeaseName(pod), Namespace: "n", ResourceVersion: "1", Labels: map[string]string{members.Label: members.LabelValue},
			Annotations: map[string]string{members.StateAnnotation: state},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &pod, LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}
	c.seen.record(lease)
	if err := c.leases.GetIndexer().Add(lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

const memberState = `{"revision":"stable","cluster":"local","version":"1.0.0","elections":[{"name":"x","candidate":true,"warm":true,"fit":true,"strategy":"` + DefaultRevision + `"}]}`

// A member remains a candidate while its Lease changes, also if its clock is set back.
func TestSightings_MemberClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllerOf(t, &rest.Config{Host: "http://unused"})
		w := &term{Controller: c}
		lease := memberLease(t, c, "a", memberState)
		for range 3 {
			time.Sleep(time.Hour)
			renewed := lease.DeepCopy()
			renewed.Spec.RenewTime.Time = renewed.Spec.RenewTime.Add(-time.Hour)
			c.eventHandler().OnUpdate(lease, renewed)
			lease = renewed
			if all, _ := w.memberCandidates("x"); len(all) != 1 {
				t.Error("no candidate after a renewal")
			}
		}
		time.Sleep(time.Hour + memberTolerance)
		c.eventHandler().OnUpdate(lease, lease) // a resync
		if all, _ := w.memberCandidates("x"); len(all) != 0 {
			t.Error("candidate without renewals")
		}
	})
}

// When the API server begins to serve LeaseCandidates, members remain the candidates until all have had time to publish themselves.
func TestElection_PublishPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllerOf(t, &rest.Config{Host: "http://unused"})
		w := &term{Controller: c}
		wantCandidates := func(when string, minAgain, maxAgain time.Duration, want ...string) {
			t.Helper()
			e, again := w.election("x", Situation{})
			var names []string
			for _, candidate := range e.Candidates {
				names = append(names, candidate.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, want) || again < minAgain || again > maxAgain {
				t.Errorf("%s: %v, again after %v", when, names, again)
			}
		}
		for _, pod := range []string{"a", "b"} {
			memberLease(t, c, pod, memberState)
		}
		c.recordServed(apierrors.NewNotFound(schema.GroupResource{}, ""))
		wantCandidates("not served", 0, 2*time.Hour, "a.x", "b.x")
		c.recordServed(nil)
		if err := c.candidates.GetIndexer().Add(candidateOf("b.x")); err != nil {
			t.Fatal(err)
		}
		wantCandidates("one is published", 1, publishPeriod, "a.x", "b.x")
		time.Sleep(publishPeriod)
		wantCandidates("after the period", 0, 0, "b.x")
	})
}
