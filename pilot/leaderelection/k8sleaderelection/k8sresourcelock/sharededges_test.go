package k8sresourcelock

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// wholeNamespace refuses the watch of a namespace with this, and no other.
func wholeNamespace(err error) func(string) error {
	return func(selector string) error {
		if selector == "" {
			return err
		}
		return nil
	}
}

// set has requests for watches answered so from now on.
func (s *leaseServer) set(refuse func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// kept is how many namespaces the Shared knows of.
func (h *Shared) kept() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.namespaces)
}

var noRight = apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))

func leaseLock(h *Shared, name string) *LeaseLock {
	return &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Client: h.Client, Shared: h}
}

func subscribed(t *testing.T, h *Shared, name string) *lockWatch {
	t.Helper()
	w := leaseLock(h, name).Subscribe(t.Context(), func() {}).(*lockWatch)
	t.Cleanup(w.End)
	synctest.Wait()
	return w
}

// shared are the watches of the whole namespace.
func (s *leaseServer) shared() []string {
	return slices.DeleteFunc(s.watches(), func(w string) bool { return !strings.HasPrefix(w, "@") })
}

func (s *leaseServer) wantShared(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := s.shared(); !slices.Equal(got, want) {
		t.Errorf("watches of the namespace %q, want %q", got, want)
	}
}

func TestSharedCountsWhoWatches(t *testing.T) {
	sharedTest(t, "and keeps nothing of those who have gone", func(t *testing.T, s *leaseServer, h *Shared) {
		h.ShareFrom = 0
		for range 10 {
			subscribed(t, h, "a").End()
		}
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
		s.wantShared(t)
		h.ShareFrom = 1
		for _, w := range []*lockWatch{subscribed(t, h, "a"), subscribed(t, h, "b")} {
			w.End()
			w.End() // once more changes nothing
		}
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
	})
	sharedTest(t, "and goes on sharing with fewer", func(t *testing.T, s *leaseServer, h *Shared) {
		h.ShareFrom = 3
		x, y, a := subscribed(t, h, "x"), subscribed(t, h, "y"), subscribed(t, h, "a")
		x.End()
		y.End()
		b := subscribed(t, h, "b")
		a.End()
		c := subscribed(t, h, "c")
		s.say(watch.Added, "b", "9")
		s.say(watch.Added, "c", "10")
		wantTold(t, b, "up after a gap", "changed9")
		wantTold(t, c, "up after a gap", "changed10")
		s.wantShared(t, "@")
	})
	sharedTest(t, "and begins anew after the last of those who share", func(t *testing.T, s *leaseServer, h *Shared) {
		h.ShareFrom = 2
		byName := subscribed(t, h, "x")
		subscribed(t, h, "a").End()
		again := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		wantTold(t, again, "up after a gap", "changed9")
		wantTold(t, byName, "up after a gap")
		s.wantShared(t, "@", "@")
	})
	sharedTest(t, "and does without a client of its own", func(t *testing.T, s *leaseServer, h *Shared) {
		meta := leaseLock(h, "a").LeaseMeta
		for _, lock := range []*LeaseLock{{LeaseMeta: meta, Client: s, Shared: &Shared{ShareFrom: 1}}, {LeaseMeta: meta, Client: s}} {
			w := lock.Subscribe(t.Context(), func() {})
			wantTold(t, w, "up after a gap")
			w.End()
		}
		if got := s.watches(); !slices.Equal(got, []string{"metadata.name=a@", "metadata.name=a@"}) {
			t.Errorf("watches %q", got)
		}
		none := (&LeaseLock{LeaseMeta: meta}).Subscribe(t.Context(), func() {})
		defer none.End()
		wantTold(t, none, "down: lease ns/a: watch: "+errNoClient.Error())
	})
	sharedTest(t, "and hands on why a watch by name fails", func(t *testing.T, s *leaseServer, h *Shared) {
		h.ShareFrom = 2
		s.set(func(string) error { return apierrors.NewInternalError(errors.New("etcd")) })
		wantTold(t, subscribed(t, h, "a"), "down: lease ns/a: watch: Internal error occurred: etcd")
	})
}

// A watch that is over does not take the next one's place away.
func TestSharedForgetsNoOtherWatch(t *testing.T) {
	next := &sharedWatch{namespace: "ns"}
	h := &Shared{namespaces: map[string]*watchers{"ns": {shared: next}}}
	if h.forget(&sharedWatch{namespace: "ns"}); h.namespaces["ns"].shared != next {
		t.Error("the next watch is forgotten")
	}
}

func TestSharedKnowsWhoMayHaveMissedSomething(t *testing.T) {
	sharedTest(t, "all are behind after a trouble before anything was shown", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		wantTold(t, a, "up after a gap")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		wantTold(t, a, "down: Internal error occurred: etcd")
		<-time.After(minPause)
		wantTold(t, a, "up after a gap")
	})
	sharedTest(t, "410 in the older form is one, too", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.fail(&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone, Message: "gone"}})
		wantTold(t, a, "up after a gap", "changed9", "down: gone")
		<-time.After(minPause)
		wantTold(t, a, "up after a gap")
		s.wantShared(t, "@", "@")
	})
	sharedTest(t, "it goes on after the latest, in whichever order things came", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "9") // once more
		s.say(watch.Added, "b", "5")
		wantTold(t, a, "up after a gap", "changed9")
		s.streams[""].Stop()
		wantTold(t, a, "up")
		s.wantShared(t, "@", "@9")
	})
}

func TestSharedAndItsConnection(t *testing.T) {
	sharedTest(t, "who comes while it is down is not told that it is up", func(t *testing.T, s *leaseServer, h *Shared) {
		subscribed(t, h, "a")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		synctest.Wait()
		b := subscribed(t, h, "b")
		wantTold(t, b)
		<-time.After(minPause)
		wantTold(t, b, "up after a gap")
	})
	sharedTest(t, "one that ends at once was not up", func(t *testing.T, s *leaseServer, h *Shared) {
		h.Client = empty{s}
		a := subscribed(t, h, "a")
		wantTold(t, a, "down: "+errNotAccepted.Error())
	})
	for name, trouble := range map[string]func(*leaseServer, *Shared){
		"that are refused": func(s *leaseServer, _ *Shared) {
			s.set(wholeNamespace(apierrors.NewInternalError(errors.New("etcd"))))
		},
		"that end at once":         func(s *leaseServer, h *Shared) { h.Client = empty{s} },
		"that begin with an error": func(s *leaseServer, h *Shared) { h.Client = erring{s} },
	} {
		sharedTest(t, "further and further apart: connections "+name, func(t *testing.T, s *leaseServer, h *Shared) {
			trouble(s, h)
			subscribed(t, h, "a")
			<-time.After(10 * time.Minute)
			if n := len(s.watches()); n < 10*60/16 || n > 10*60/8+8 {
				t.Errorf("%d connections in ten minutes", n)
			}
		})
	}
	sharedTest(t, "further and further apart: connections that show nothing", func(t *testing.T, s *leaseServer, h *Shared) {
		subscribed(t, h, "a")
		began := time.Now()
		for range 10 {
			n := len(s.watches())
			s.streams[""].Stop()
			for len(s.watches()) == n {
				<-time.After(minPause / 8)
				synctest.Wait()
			}
		}
		if took := time.Since(began); took < 20*time.Second {
			t.Errorf("ten connections within %v", took)
		}
	})
	sharedTest(t, "soon again after one that has shown something", func(t *testing.T, s *leaseServer, h *Shared) {
		s.set(wholeNamespace(apierrors.NewInternalError(errors.New("etcd"))))
		subscribed(t, h, "a")
		<-time.After(time.Minute)
		s.set(wholeNamespace(nil))
		<-time.After(minPause << maxPauseShift)
		s.say(watch.Added, "a", "9")
		n := len(s.watches())
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		<-time.After(minPause)
		synctest.Wait()
		if len(s.watches()) != n+1 {
			t.Errorf("%d connections more within %v", len(s.watches())-n, minPause)
		}
	})
	sharedTest(t, "at random moments, so that many do not come back together", func(t *testing.T, s *leaseServer, h *Shared) {
		var least, most time.Duration
		for range 300 {
			began := time.Now()
			pause(t.Context(), 3)
			took := time.Since(began)
			if least == 0 || took < least {
				least = took
			}
			most = max(most, took)
		}
		if full := minPause << 2; least < full/2 || least > full*6/10 || most > full || most < full*9/10 {
			t.Errorf("pauses from %v to %v, want them between the half and the whole of %v", least, most, full)
		}
	})
}

// empty serves watches that end at once, as client-go does when a connection broke off.
type empty struct{ *leaseServer }

func (e empty) Leases(string) coordinationv1client.LeaseInterface { return e }

func (e empty) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if _, err := e.leaseServer.Watch(ctx, opts); err != nil {
		return nil, err
	}
	return watch.NewEmptyWatch(), nil
}

// erring serves watches whose first event is an error.
type erring struct{ *leaseServer }

func (e erring) Leases(string) coordinationv1client.LeaseInterface { return e }

func (e erring) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if _, err := e.leaseServer.Watch(ctx, opts); err != nil {
		return nil, err
	}
	status := apierrors.NewInternalError(errors.New("etcd")).Status()
	w := watch.NewFakeWithChanSize(1, false)
	w.Error(&status)
	return w, nil
}

func TestSharedRemembersThatItHasNoRight(t *testing.T) {
	sharedTest(t, "when nobody watches any more, for as long as it said", func(t *testing.T, s *leaseServer, h *Shared) {
		s.set(wholeNamespace(noRight))
		subscribed(t, h, "a").End()
		<-time.After(maxWatch / 2)
		subscribed(t, h, "a").End()
		s.wantShared(t, "@")
		<-time.After(maxWatch)
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
	})
	sharedTest(t, "and leaves those alone who came when it had it again", func(t *testing.T, s *leaseServer, h *Shared) {
		s.set(wholeNamespace(noRight))
		a := subscribed(t, h, "a") // and does not look
		s.set(wholeNamespace(nil))
		<-time.After(maxWatch / 2)
		s.wantShared(t, "@")
		<-time.After(maxWatch)
		b := subscribed(t, h, "b")
		wantTold(t, b, "up after a gap")
		s.wantShared(t, "@", "@")
		a.End()
		c := subscribed(t, h, "c")
		wantTold(t, c, "up after a gap")
		s.wantShared(t, "@", "@")
	})
}

func TestSharedInARestoredStore(t *testing.T) {
	sharedTest(t, "an absent Lease says nothing about the store", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "90")
		s.say(watch.Deleted, "a", "91")
		a.StoreRestored("")
		wantTold(t, a, "up after a gap", "changed90", "gone91")
		s.wantShared(t, "@")
	})
	sharedTest(t, "what the old connection still shows does not count", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "90")
		newsOf(a)
		a.StoreRestored("40")
		if err := a.share.of.show(watch.Event{Type: watch.Modified, Object: leaseOf("a", "91")}); err != nil {
			t.Error(err)
		}
		for _, n := range newsOf(a) {
			if strings.HasPrefix(n, "changed") {
				t.Errorf("told %q", n)
			}
		}
	})
}

func TestVersionsAreNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"10", "9", true}, {"9", "10", false}, {"10", "10", false}, {"11", "10", true}, {"10", "11", false}, {"1", "", true}, {"", "1", false}, {"", "", false}} {
		if later(c.a, c.b) != c.want {
			t.Errorf("%q is later than %q: %v", c.a, c.b, !c.want)
		}
	}
}
