package k8sresourcelock

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leaseServer serves some Leases of one namespace, and watches that a test plays.
type leaseServer struct {
	coordinationv1client.LeaseInterface

	mu      sync.Mutex
	present map[string]string // versions by name
	opened  []string          // "selector@from" of each watch, in order
	streams map[string]*watch.FakeWatcher
	refuse  func(selector string) error
}

func newLeaseServer() *leaseServer {
	return &leaseServer{present: map[string]string{}, streams: map[string]*watch.FakeWatcher{}, refuse: func(string) error { return nil }}
}

func (s *leaseServer) Leases(string) coordinationv1client.LeaseInterface { return s }

func leaseOf(name, version string) *coordinationv1.Lease {
	seconds := int32(30)
	holder := "at-" + version
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, UID: "uid"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}
}

func (s *leaseServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version, ok := s.present[name]; ok {
		return leaseOf(name, version), nil
	}
	return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
}

func (s *leaseServer) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, opts.FieldSelector+"@"+opts.ResourceVersion)
	if err := s.refuse(opts.FieldSelector); err != nil {
		return nil, err
	}
	w := watch.NewFake()
	s.streams[opts.FieldSelector] = w
	return w, nil
}

// say has a Lease change, and the namespace's watch show it.
func (s *leaseServer) say(kind watch.EventType, name, version string) {
	s.mu.Lock()
	s.present[name] = version
	if kind == watch.Deleted {
		delete(s.present, name)
	}
	stream := s.streams[""]
	s.mu.Unlock()
	stream.Action(kind, leaseOf(name, version))
	synctest.Wait()
}

func (s *leaseServer) fail(err apierrors.APIStatus) {
	status := err.Status()
	s.streams[""].Action(watch.Error, &status)
}

func (s *leaseServer) watches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.opened)
}

func sharedTest(t *testing.T, name string, f func(t *testing.T, s *leaseServer, h *Shared)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer()
			f(t, s, &Shared{Client: s, ShareFrom: 1})
		})
	})
}

func TestSharedOpensOneWatchFromAFewOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer()
		h := &Shared{Client: s}
		var all []*lockWatch
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, subscribed(t, h, name))
		}
		want := []string{"metadata.name=a@", "metadata.name=b@", "metadata.name=c@", "@"}
		if got := s.watches(); !slices.Equal(got, want) {
			t.Errorf("watches %q, want %q", got, want)
		}
		s.say(watch.Added, "e", "7")
		wantTold(t, all[4], "up after a gap", "changed7")
		wantTold(t, all[3], "up after a gap")
		// One whose own watch has ended joins the others.
		s.say(watch.Added, "a", "9")
		s.streams["metadata.name=a"].Action(watch.Added, leaseOf("a", "9"))
		s.streams["metadata.name=a"].Stop()
		wantTold(t, all[0], "up after a gap", "changed9", "down", "up after a gap")
		s.say(watch.Modified, "a", "10")
		wantTold(t, all[0], "changed10")
		if n := len(s.watches()); n != 4 {
			t.Errorf("%d watches", n)
		}
		for _, w := range all {
			w.End()
		}
		if len(h.namespaces) != 0 || !s.streams[""].IsStopped() {
			t.Error("the shared watch runs on although nobody watches")
		}
	})
}

func TestSharedShows(t *testing.T) {
	sharedTest(t, "what concerns each, in order, deletions too", func(t *testing.T, s *leaseServer, h *Shared) {
		a, b := subscribed(t, h, "a"), subscribed(t, h, "b")
		s.say(watch.Added, "a", "8")
		s.say(watch.Added, "b", "9")
		s.say(watch.Modified, "a", "10")
		s.say(watch.Deleted, "a", "11")
		s.say(watch.Added, "a", "101")
		wantTold(t, a, "up after a gap", "changed8", "changed10", "gone11", "changed101")
		wantTold(t, b, "up after a gap", "changed9")
	})
	sharedTest(t, "a late one nothing older", func(t *testing.T, s *leaseServer, h *Shared) {
		first := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.say(watch.Added, "b", "10")
		late := subscribed(t, h, "b")
		s.say(watch.Added, "b", "10") // as at the start of a watch
		s.say(watch.Modified, "b", "11")
		wantTold(t, late, "up after a gap", "changed11")
		wantTold(t, first, "up after a gap", "changed9")
	})
	sharedTest(t, "one Lease to several", func(t *testing.T, s *leaseServer, h *Shared) {
		one, two := subscribed(t, h, "a"), subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		wantTold(t, one, "up after a gap", "changed9")
		one.End()
		s.say(watch.Modified, "a", "10")
		wantTold(t, two, "up after a gap", "changed9", "changed10")
		wantTold(t, one)
	})
}

func TestSharedGoesOn(t *testing.T) {
	sharedTest(t, "where it was when the server ends the watch", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.streams[""].Action(watch.Bookmark, leaseOf("", "15"))
		s.streams[""].Stop()
		synctest.Wait()
		s.say(watch.Modified, "a", "16")
		wantTold(t, a, "up after a gap", "changed9", "up", "changed16")
		s.streams[""].Stop()
		wantTold(t, a, "up")
		s.streams[""].Stop() // with nothing shown
		wantTold(t, a, "down")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@15", "@16"}) {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "not without a word when it ends with nothing shown", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.streams[""].Stop()
		wantTold(t, a, "up after a gap", "down")
	})
}

func TestSharedWithoutTheRight(t *testing.T) {
	sharedTest(t, "watches by name, and tries again later", func(t *testing.T, s *leaseServer, h *Shared) {
		s.set(wholeNamespace(noRight))
		a, b := subscribed(t, h, "a"), subscribed(t, h, "b")
		s.streams["metadata.name=a"].Action(watch.Added, leaseOf("a", "9"))
		wantTold(t, a, "down", "up after a gap", "changed9")
		wantTold(t, b, "up after a gap")
		if got := s.watches(); !slices.Equal(got, []string{"@", "metadata.name=a@", "metadata.name=b@"}) {
			t.Errorf("watches %q", got)
		}
		s.set(wholeNamespace(nil))
		<-time.After(maxWatch + time.Second)
		c := subscribed(t, h, "c")
		s.say(watch.Added, "c", "10")
		wantTold(t, c, "up after a gap", "changed10")
		s.streams["metadata.name=a"].Stop()
		wantTold(t, a, "down", "up after a gap")
		s.say(watch.Modified, "a", "11")
		wantTold(t, a, "changed11")
	})
	sharedTest(t, "that it lost", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.set(wholeNamespace(noRight))
		s.streams[""].Stop()
		wantTold(t, a, "up after a gap", "changed9", "down", "up after a gap")
		if got := s.watches(); got[len(got)-1] != "metadata.name=a@" {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "and whoever ends meanwhile is not followed by name", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		a.End()
		a.refused()
		a.join()
		synctest.Wait()
		if got := s.watches(); !slices.Equal(got, []string{"@"}) {
			t.Errorf("watches %q", got)
		}
	})
}

func TestSharedDropsWhoDoesNotLook(t *testing.T) {
	sharedTest(t, "and nobody else", func(t *testing.T, s *leaseServer, h *Shared) {
		a, other := subscribed(t, h, "a"), subscribed(t, h, "b")
		for i := range maxPending + 2 {
			s.say(watch.Modified, "a", strconv.Itoa(100+i))
		}
		s.say(watch.Added, "b", "900")
		wantTold(t, other, "up after a gap", "changed900")
		if got := newsOf(a); got[0] != "down: "+errBehind.Error() || got[1] != "up after a gap" {
			t.Errorf("told %q", got)
		}
	})
}
