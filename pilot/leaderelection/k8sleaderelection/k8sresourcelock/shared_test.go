package k8sresourcelock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	watchpkg "incumbent.dev/incumbent/internal/watch"
)

// leaseServer serves Leases of one namespace and watches that the test controls.
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

// say changes a Lease and sends a watch event.
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
			f(t, s, &Shared{Client: s, MinSharedWatches: 1})
		})
	})
}

func TestShared_MinSharedWatches(t *testing.T) {
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
		// A lock whose own watch has ended joins the others.
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
			t.Error("the shared watch runs without users")
		}
	})
}

func TestShared_Forbidden(t *testing.T) {
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
		<-time.After(watchpkg.MaxWatch + time.Second)
		c := subscribed(t, h, "c")
		s.say(watch.Added, "c", "10")
		wantTold(t, c, "up after a gap", "changed10")
		s.streams["metadata.name=a"].Stop()
		wantTold(t, a, "up after a gap")
		s.say(watch.Modified, "a", "11")
		wantTold(t, a, "changed11")
	})
	sharedTest(t, "that it lost", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.set(wholeNamespace(noRight))
		<-time.After(watchpkg.ShortWatch)
		s.streams[""].Stop()
		wantTold(t, a, "up after a gap", "changed9", "down", "up after a gap")
		if got := s.watches(); got[len(got)-1] != "metadata.name=a@" {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "that sends no versions", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "")
		wantTold(t, a, "up after a gap", "down", "up after a gap")
		if got := s.watches(); got[len(got)-1] != "metadata.name=a@" {
			t.Errorf("watches %q", got)
		}
	})
	sharedTest(t, "without users, for as long as it said", func(t *testing.T, s *leaseServer, h *Shared) {
		s.set(wholeNamespace(noRight))
		subscribed(t, h, "a").End()
		<-time.After(watchpkg.MaxWatch / 2)
		subscribed(t, h, "a").End()
		s.wantShared(t, "@")
		<-time.After(watchpkg.MaxWatch)
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
	})
}

// wholeNamespace is the error for watches of a namespace.
func wholeNamespace(err error) func(string) error {
	return func(selector string) error {
		if selector == "" {
			return err
		}
		return nil
	}
}

// set sets the result of further watch requests.
func (s *leaseServer) set(refuse func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// kept returns the number of namespaces in the Shared.
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

// shared returns the watches of the whole namespace.
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

func TestShared_CountsWatches(t *testing.T) {
	sharedTest(t, "keeps nothing of ended subscriptions", func(t *testing.T, s *leaseServer, h *Shared) {
		h.MinSharedWatches = 0
		for range 10 {
			subscribed(t, h, "a").End()
		}
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
		s.wantShared(t)
		h.MinSharedWatches = 1
		for _, w := range []*lockWatch{subscribed(t, h, "a"), subscribed(t, h, "b")} {
			w.End()
			w.End() // once more changes nothing
		}
		if h.kept() != 0 {
			t.Errorf("%d namespaces are kept", h.kept())
		}
	})
	sharedTest(t, "several users of one Lease", func(t *testing.T, s *leaseServer, h *Shared) {
		one, two := subscribed(t, h, "a"), subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		wantTold(t, one, "up after a gap", "changed9")
		one.End()
		s.say(watch.Modified, "a", "10")
		wantTold(t, two, "up after a gap", "changed9", "changed10")
		wantTold(t, one)
	})
	sharedTest(t, "continues with fewer users", func(t *testing.T, s *leaseServer, h *Shared) {
		first, second := subscribed(t, h, "a"), subscribed(t, h, "b")
		wantTold(t, second, "up after a gap")
		first.End()
		s.say(watch.Added, "b", "9")
		wantTold(t, second, "changed9")
		subscribed(t, h, "c")
		s.wantShared(t, "@")
	})
	sharedTest(t, "restarts after the last user", func(t *testing.T, s *leaseServer, h *Shared) {
		h.MinSharedWatches = 2
		byName := subscribed(t, h, "x")
		subscribed(t, h, "a").End()
		again := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		wantTold(t, again, "up after a gap", "changed9")
		wantTold(t, byName, "up after a gap")
		s.wantShared(t, "@", "@")
	})
}

// A watch that has ended does not remove its successor.
func TestShared_ForgetsOnlyItself(t *testing.T) {
	next := &feed{namespace: "ns"}
	s := &Shared{namespaces: map[string]*watchers{"ns": {shared: next}}}
	if s.forget(&feed{namespace: "ns"}); s.namespaces["ns"].shared != next {
		t.Error("the successor was removed")
	}
}

func TestShared_Gap(t *testing.T) {
	sharedTest(t, "all are behind after a trouble before anything was shown", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		wantTold(t, a, "up after a gap")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		wantTold(t, a, "down: lease ns/a: watch: Internal error occurred: etcd")
		<-time.After(2 * watchpkg.FirstPause)
		wantTold(t, a, "up after a gap")
	})
	sharedTest(t, "resumes after the latest version", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "9") // once more
		s.say(watch.Added, "b", "5")
		wantTold(t, a, "up after a gap", "changed9")
		<-time.After(watchpkg.ShortWatch)
		s.streams[""].Stop()
		wantTold(t, a, "up")
		s.wantShared(t, "@", "@9")
	})
}

func TestShared_Connection(t *testing.T) {
	sharedTest(t, "new user while disconnected", func(t *testing.T, s *leaseServer, h *Shared) {
		subscribed(t, h, "a")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		synctest.Wait()
		b := subscribed(t, h, "b")
		wantTold(t, b)
		<-time.After(2 * watchpkg.FirstPause)
		wantTold(t, b, "up after a gap")
	})
}

func TestShared_StoreRestored(t *testing.T) {
	sharedTest(t, "absent Lease", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "90")
		s.say(watch.Deleted, "a", "91")
		a.StoreRestored("")
		wantTold(t, a, "up after a gap", "changed90", "gone91")
		s.wantShared(t, "@")
	})
	sharedTest(t, "late events of the old connection does not count", func(t *testing.T, s *leaseServer, h *Shared) {
		a := subscribed(t, h, "a")
		s.say(watch.Added, "a", "90")
		eventsOf(a)
		s.set(wholeNamespace(apierrors.NewInternalError(errors.New("etcd")))) // there is no new connection yet
		a.StoreRestored("40")
		if err := a.feed.show(t.Context(), watch.Modified, leaseOf("a", "91")); err != nil {
			t.Error(err)
		}
		for _, n := range eventsOf(a) {
			if strings.HasPrefix(n, "changed") {
				t.Errorf("told %q", n)
			}
		}
	})
}
