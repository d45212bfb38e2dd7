package k8sresourcelock

import (
	"context"
	"errors"
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

func TestSubscriptionWakesOnce(t *testing.T) {
	hubTest(t, "until somebody looks", func(t *testing.T, s *leaseServer, h *WatchHub) {
		wakes := 0
		a := leaseLock(h, "a").Subscribe(t.Context(), func() { wakes++ })
		defer a.End()
		synctest.Wait()
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "10")
		if wakes != 1 {
			t.Errorf("%d wakes for news that nobody has taken", wakes)
		}
		told(a)
		s.say(watch.Modified, "a", "11")
		if wakes != 2 {
			t.Errorf("%d wakes", wakes)
		}
	})
}

// What a Watch does on the shared one when it ends, or cannot begin.
func TestWatchThroughAHub(t *testing.T) {
	watching := func(t *testing.T, h *WatchHub, up func(), seen func(Snapshot), cancelled context.Context) (resume string, err error) {
		t.Helper()
		return leaseLock(h, "a").Watch(cancelled, "", up, seen)
	}
	hubTest(t, "is over for the one who has ended it, whatever is in store", func(t *testing.T, s *leaseServer, h *WatchHub) {
		ctx, cancel := context.WithCancel(t.Context())
		var saw []string
		done, more := make(chan string), make(chan struct{})
		go func() {
			resume, err := watching(t, h, func() {}, func(snap Snapshot) {
				if saw = append(saw, snap.ResourceVersion); len(saw) == 2 {
					cancel()
				}
				<-more
			}, ctx)
			if err != nil {
				t.Error(err)
			}
			done <- resume
		}()
		synctest.Wait()
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "10")
		s.say(watch.Modified, "a", "11")
		close(more) // both others are in store now
		if resume := <-done; resume != "10" || !slices.Equal(saw, []string{"9", "10"}) {
			t.Errorf("saw %q, resume %q", saw, resume)
		}
		if got := s.watches(); !slices.Equal(got, []string{"@"}) {
			t.Errorf("watches %q", got)
		}
	})
	hubTest(t, "shows nothing to one who ended it when it was up", func(t *testing.T, s *leaseServer, h *WatchHub) {
		s.present["a"] = "9"
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := watching(t, h, cancel, func(Snapshot) { t.Error("shown") }, ctx); err != nil {
			t.Error(err)
		}
	})
	hubTest(t, "fails with the first look", func(t *testing.T, s *leaseServer, h *WatchHub) {
		h.Client = blind{s}
		resume, err := watching(t, h, func() { t.Error("up") }, func(Snapshot) { t.Error("shown") }, t.Context())
		if !apierrors.IsForbidden(err) || resume != "" || !strings.HasPrefix(err.Error(), "lease ns/a: ") {
			t.Errorf("resume %q, error %v", resume, err)
		}
	})
}

// blind may watch, not get.
type blind struct{ *leaseServer }

func (b blind) Leases(string) coordinationv1client.LeaseInterface { return b }

func (b blind) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return nil, noRight
}

// slow answers when its context ends, or at once; it keeps the context.
type slow struct {
	*leaseServer
	hangs bool
	ctx   context.Context
}

func (s *slow) Leases(string) coordinationv1client.LeaseInterface { return s }

func (s *slow) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	if s.ctx = ctx; s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.leaseServer.Get(ctx, name, opts)
}

func TestTheFirstLookHasALimit(t *testing.T) {
	hubTest(t, "and a watch that cannot look ends", func(t *testing.T, s *leaseServer, h *WatchHub) {
		h.Client = &slow{leaseServer: s, hangs: true}
		began := time.Now()
		if _, err := leaseLock(h, "a").Watch(t.Context(), "", func() { t.Error("up") }, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != acceptLimit {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
	hubTest(t, "and leaves nothing behind", func(t *testing.T, s *leaseServer, h *WatchHub) {
		client := &slow{leaseServer: s}
		h.Client = client
		look(t, h, "a", "").wants(t)
		if client.ctx.Err() == nil {
			t.Error("the look's context is open while the watch goes on")
		}
	})
}
