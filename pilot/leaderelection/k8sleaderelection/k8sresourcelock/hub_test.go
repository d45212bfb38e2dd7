package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// onlooker is one Watch through a hub.
type onlooker struct {
	cancel context.CancelFunc
	done   chan struct{}
	ups    int
	saw    []string // versions, with "-" in front when the Lease does not exist
	block  chan struct{}
	resume string
	err    error
}

func look(t *testing.T, h *WatchHub, name, from string) *onlooker {
	ctx, cancel := context.WithCancel(t.Context())
	o := &onlooker{cancel: cancel, done: make(chan struct{})}
	lock := &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Client: h.Client, Hub: h}
	go func() {
		defer close(o.done)
		o.resume, o.err = lock.Watch(ctx, from, func() { o.ups++ }, func(s Snapshot) {
			version := s.ResourceVersion
			if !s.Exists {
				version = "-" + version
			} else if s.Record.HolderIdentity != "at-"+version {
				version = fmt.Sprintf("%+v", s.Record)
			}
			o.saw = append(o.saw, version)
			if o.block != nil {
				<-o.block
			}
		})
	}()
	t.Cleanup(o.quit)
	synctest.Wait()
	return o
}

func (o *onlooker) quit() {
	o.cancel()
	<-o.done
}

func (o *onlooker) wants(t *testing.T, versions ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(o.saw, versions) || o.ups != 1 {
		t.Errorf("saw %q, up %d times; want %q", o.saw, o.ups, versions)
	}
}

// ends wants the watch over.
func (o *onlooker) ends(t *testing.T, resume string, is func(error) bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-o.done:
	default:
		t.Fatal("the watch goes on")
	}
	if o.resume != resume || !is(o.err) {
		t.Errorf("resume %q, error %v; want %q", o.resume, o.err, resume)
	}
}

func noError(err error) bool { return err == nil }

func hubTest(t *testing.T, name string, f func(t *testing.T, s *leaseServer, h *WatchHub)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer()
			f(t, s, &WatchHub{Client: s, ShareFrom: 1})
		})
	})
}

func TestHubOpensOneWatchFromAFewOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer()
		h := &WatchHub{Client: s}
		var all []*onlooker
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, look(t, h, name, ""))
		}
		want := []string{"metadata.name=a@", "metadata.name=b@", "metadata.name=c@", "@"}
		if got := s.watches(); !slices.Equal(got, want) {
			t.Errorf("watches %q, want %q", got, want)
		}
		s.say(watch.Added, "e", "7")
		all[4].wants(t, "7")
		all[3].wants(t)
		// One whose own watch has ended joins the others.
		s.say(watch.Added, "a", "9")
		s.streams["metadata.name=a"].Action(watch.Added, leaseOf("a", "9"))
		s.streams["metadata.name=a"].Stop()
		all[0].ends(t, "9", noError)
		again := look(t, h, "a", "9")
		s.say(watch.Modified, "a", "10")
		again.wants(t, "10")
		if n := len(s.watches()); n != 4 {
			t.Errorf("%d watches", n)
		}
		for _, o := range append(all, again) {
			o.quit()
		}
		if len(h.namespaces) != 0 || !s.streams[""].IsStopped() {
			t.Error("the hub runs on although nobody watches")
		}
	})
}

func TestHubShows(t *testing.T) {
	hubTest(t, "what concerns each, in order, deletions too", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a, b := look(t, h, "a", ""), look(t, h, "b", "")
		s.say(watch.Added, "a", "8")
		s.say(watch.Added, "b", "9")
		s.say(watch.Modified, "a", "10")
		s.say(watch.Deleted, "a", "11")
		s.say(watch.Added, "a", "101")
		a.wants(t, "8", "10", "-11", "101")
		b.wants(t, "9")
	})
	hubTest(t, "a late one the present state, and nothing older", func(t *testing.T, s *leaseServer, h *WatchHub) {
		first := look(t, h, "a", "")
		s.say(watch.Added, "a", "9")
		s.say(watch.Added, "b", "10")
		late := look(t, h, "b", "")
		s.say(watch.Added, "b", "10") // as at the start of a watch
		s.say(watch.Modified, "b", "11")
		late.wants(t, "10", "11")
		first.wants(t, "9")
	})
	hubTest(t, "one Lease to several", func(t *testing.T, s *leaseServer, h *WatchHub) {
		one, two := look(t, h, "a", ""), look(t, h, "a", "")
		s.say(watch.Added, "a", "9")
		one.wants(t, "9")
		one.quit()
		s.say(watch.Modified, "a", "10")
		two.wants(t, "9", "10")
	})
}

func TestHubGoesOn(t *testing.T) {
	hubTest(t, "where it was when the server ends the watch", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := look(t, h, "a", "")
		s.say(watch.Added, "a", "9")
		s.streams[""].Action(watch.Bookmark, leaseOf("", "15"))
		s.streams[""].Stop()
		synctest.Wait()
		s.say(watch.Modified, "a", "16")
		a.wants(t, "9", "16")
		if got := s.watches(); !slices.Equal(got, []string{"@", "@15"}) {
			t.Errorf("watches %q", got)
		}
	})
	hubTest(t, "not when it ends again and again", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := look(t, h, "a", "5")
		s.streams[""].Stop()
		a.ends(t, "5", noError)
	})
	hubTest(t, "for those who come back after trouble", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a, b := look(t, h, "a", ""), look(t, h, "b", "")
		s.say(watch.Added, "a", "9")
		s.say(watch.Added, "b", "10")
		s.fail(apierrors.NewInternalError(errors.New("etcd")))
		broken := func(err error) bool {
			return apierrors.IsInternalError(err) && strings.HasPrefix(err.Error(), "lease ns/")
		}
		a.ends(t, "10", broken)
		b.ends(t, "10", broken)
		a = look(t, h, "a", a.resume)
		s.say(watch.Modified, "a", "11")
		joined := look(t, h, "b", b.resume) // nothing has happened to it
		s.say(watch.Modified, "b", "12")
		joined.wants(t, "12")
		a.wants(t, "11")
		tooLate := look(t, h, "b", "10") // 12 came before it was back
		tooLate.ends(t, "", noError)
		if got := s.watches(); !slices.Equal(got, []string{"@", "@10"}) {
			t.Errorf("watches %q", got)
		}
	})
	hubTest(t, "anew when the version is gone", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := look(t, h, "a", "5")
		s.fail(apierrors.NewResourceExpired("too old"))
		a.ends(t, "", apierrors.IsResourceExpired)
	})
}

func TestHubAndARestoredStore(t *testing.T) {
	hubTest(t, "what it has shown is in the future", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a, b := look(t, h, "a", ""), look(t, h, "b", "")
		s.say(watch.Added, "a", "90")
		s.present["a"] = "40"
		back := look(t, h, "a", "") // who has read it, and starts anew
		for _, o := range []*onlooker{a, b, back} {
			o.ends(t, "", noError)
		}
		a = look(t, h, "a", "")
		s.say(watch.Modified, "a", "41")
		a.wants(t, "40", "41")
	})
	hubTest(t, "where it resumed is in the future", func(t *testing.T, s *leaseServer, h *WatchHub) {
		look(t, h, "a", "90")
		s.present["b"] = "40"
		b := look(t, h, "b", "")
		s.streams["metadata.name=b"].Action(watch.Added, leaseOf("b", "40"))
		b.wants(t, "40") // by its name: nobody knows whether the shared one will ever speak
	})
}

func TestHubWithoutTheRight(t *testing.T) {
	hubTest(t, "watches by name, and tries again later", func(t *testing.T, s *leaseServer, h *WatchHub) {
		s.refuse = func(selector string) error {
			if selector == "" {
				return apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))
			}
			return nil
		}
		a, b := look(t, h, "a", ""), look(t, h, "b", "")
		s.streams["metadata.name=a"].Action(watch.Added, leaseOf("a", "9"))
		a.wants(t, "9")
		b.wants(t)
		if got := s.watches(); !slices.Equal(got, []string{"@", "metadata.name=a@", "metadata.name=b@"}) {
			t.Errorf("watches %q", got)
		}
		s.refuse = func(string) error { return nil }
		<-time.After(maxWatch + time.Second)
		c := look(t, h, "c", "")
		s.say(watch.Added, "c", "10")
		c.wants(t, "10")
	})
	hubTest(t, "that it lost", func(t *testing.T, s *leaseServer, h *WatchHub) {
		a := look(t, h, "a", "")
		s.say(watch.Added, "a", "9")
		s.refuse = func(selector string) error {
			if selector == "" {
				return apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))
			}
			return nil
		}
		s.streams[""].Stop()
		a.ends(t, "9", noError)
		look(t, h, "a", "9").wants(t)
		if got := s.watches(); got[len(got)-1] != "metadata.name=a@9" {
			t.Errorf("watches %q", got)
		}
	})
}

func TestHubDropsWhoDoesNotLook(t *testing.T) {
	hubTest(t, "and nobody else", func(t *testing.T, s *leaseServer, h *WatchHub) {
		other := look(t, h, "b", "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lock := &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Client: s, Hub: h}
		look, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := lock.Watch(ctx, "", func() {}, func(Snapshot) { <-look })
			ended <- err
		}()
		synctest.Wait()
		for i := range maxPending + 2 {
			s.say(watch.Modified, "a", strconv.Itoa(100+i))
		}
		s.say(watch.Added, "b", "900")
		other.wants(t, "900")
		close(look)
		if err := <-ended; !errors.Is(err, errBehind) {
			t.Errorf("error %v", err)
		}
	})
}
