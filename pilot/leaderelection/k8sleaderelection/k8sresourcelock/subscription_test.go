package k8sresourcelock

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// told is what a subscription has in store, in short.
func told(s *Subscription) []string {
	synctest.Wait()
	var all []string
	for _, n := range s.Next() {
		word := []string{"up", "down", "changed", "refused"}[n.Kind]
		if n.Gap {
			word += " after a gap"
		}
		if n.Err != nil {
			word += ": " + n.Err.Error()
		}
		all = append(all, word+n.Snapshot.ResourceVersion)
	}
	return all
}

func wantTold(t *testing.T, s *Subscription, want ...string) {
	t.Helper()
	if got := told(s); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestSubscription(t *testing.T) {
	subscribe := func(t *testing.T, h *WatchHub, name string) *Subscription {
		sub := (&LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Client: h.Client, Hub: h}).Subscribe(t.Context(), func() {})
		t.Cleanup(sub.End)
		synctest.Wait()
		return sub
	}
	hubTest(t, "lasts over connections", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := subscribe(t, h, "a")
		wantTold(t, a, "up after a gap")
		s.say(watch.Added, "a", "9")
		s.say(watch.Added, "b", "10")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		wantTold(t, a, "changed9", "down: Internal error occurred: etcd")
		<-time.After(minPause)
		b := subscribe(t, h, "b")
		wantTold(t, a, "up")
		wantTold(t, b, "up after a gap")
		s.fail(apierrors.NewResourceExpired("too old"))
		wantTold(t, a, "down: too old")
		<-time.After(minPause << maxPauseShift)
		wantTold(t, a, "up after a gap")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@10", "@"}) {
			t.Errorf("watches %q", got)
		}
	})
	hubTest(t, "begins anew once in a restored store", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a, b := subscribe(t, h, "a"), subscribe(t, h, "b")
		s.say(watch.Added, "a", "90")
		s.say(watch.Added, "b", "91")
		told(a)
		told(b)
		a.Rewound("40")
		wantTold(t, a, "down", "up after a gap")
		b.Rewound("41")
		wantTold(t, a)
		wantTold(t, b, "down", "up after a gap")
		s.say(watch.Modified, "b", "42")
		wantTold(t, b, "changed42")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@"}) {
			t.Errorf("watches %q", got)
		}
	})
	hubTest(t, "is refused without the right", func(t *testing.T, s *leaseServer, h *WatchHub) {
		s.refuse = func(string) error {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))
		}
		wantTold(t, subscribe(t, h, "a"), "refused")
		lock := &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, Client: s, Hub: h}
		if lock.Subscribe(t.Context(), func() {}) != nil {
			t.Error("another one is made")
		}
	})
	hubTest(t, "starts over when it is far behind", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := subscribe(t, h, "a")
		synctest.Wait()
		for i := range maxPending {
			s.say(watch.Modified, "a", strconv.Itoa(100+i))
		}
		wantTold(t, a, "down: "+errBehind.Error(), "up after a gap", "changed355")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer()
		lock := &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Client: s, Hub: &WatchHub{Client: s}}
		if lock.Subscribe(t.Context(), func() {}) != nil {
			t.Error("a single lock has a right of its own that is smaller")
		}
	})
}
