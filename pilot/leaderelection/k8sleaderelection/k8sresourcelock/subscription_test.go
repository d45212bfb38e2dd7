package k8sresourcelock

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	watchpkg "incumbent.dev/incumbent/internal/watch"
)

// eventsOf returns the events of the subscription as text.
func eventsOf(s Subscription) []string {
	synctest.Wait()
	return texts(s.Next())
}

func texts(events []Event) (all []string) {
	for _, n := range events {
		word := []string{"up", "down", "changed"}[n.Kind]
		if n.Kind == Changed && !n.Snapshot.Exists {
			word = "gone"
		}
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

func wantTold(t *testing.T, s Subscription, want ...string) {
	t.Helper()
	if got := eventsOf(s); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestSubscription(t *testing.T) {
	sharedTest(t, "lasts over connections", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		wantTold(t, a, "up after a gap")
		s.say(watch.Added, "a", "9")
		s.say(watch.Added, "b", "10")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		wantTold(t, a, "changed9", "down: lease ns/a: watch: Internal error occurred: etcd")
		<-time.After(2 * watchpkg.FirstPause)
		b := subscribed(t, h, "b")
		wantTold(t, a, "up")
		wantTold(t, b, "up after a gap")
		s.fail(apierrors.NewResourceExpired("too old"))
		wantTold(t, a, "down: lease ns/a: watch: too old")
		<-time.After(longestPause * 3 / 2)
		wantTold(t, a, "up after a gap")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@10", "@"}) {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "restarts once in a restored store", func(t *testing.T, s *leaseServer, h *Shared) {
		a, b := subscribed(t, h, "a"), subscribed(t, h, "b")
		s.say(watch.Added, "a", "90")
		s.say(watch.Added, "b", "91")
		eventsOf(a)
		eventsOf(b)
		a.StoreRestored("40")
		wantTold(t, a, "down", "up after a gap")
		b.StoreRestored("41")
		wantTold(t, a)
		wantTold(t, b, "down", "up after a gap")
		s.say(watch.Modified, "b", "42")
		wantTold(t, b, "changed42")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@"}) {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "starts over when it is far behind", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		synctest.Wait()
		for i := range maxPending {
			s.say(watch.Modified, "a", strconv.Itoa(100+i))
		}
		wantTold(t, a, "down: "+errQueueFull.Error(), "up after a gap", "changed355")
	})
}

func TestSubscription_WakesOnce(t *testing.T) {
	sharedTest(t, "until somebody looks", func(t *testing.T, s *leaseServer, h *Shared) {
		wakes := 0
		a := leaseLock(h, "a").Subscribe(t.Context(), func() { wakes++ })
		defer a.End()
		synctest.Wait()
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "10")
		if wakes != 1 {
			t.Errorf("woken %d times without a call of Next", wakes)
		}
		eventsOf(a)
		s.say(watch.Modified, "a", "11")
		if wakes != 2 {
			t.Errorf("%d wakes", wakes)
		}
	})
}
