package k8sleaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// TestRefusedWrites checks the promise "bounded effort". For ten minutes all writes fail, while reads and watches work.
func TestRefusedWrites(t *testing.T) {
	for name, c := range map[string]struct {
		err error
		log string // logged once
	}{
		"forbidden":         {apierrors.NewForbidden(leases, locktest.Name, errors.New("no")), "permission for the lock is missing"},
		"too many requests": {apierrors.NewTooManyRequests("busy", 1), "API server has too many requests"},
		"long retry-after":  {apierrors.NewTooManyRequests("busy", 1<<30), "API server has too many requests"},
		// The elector sees a conflict although no other candidate writes.
		"webhook conflict": {fmt.Errorf("%w: %w", k8sresourcelock.ErrConflict, webhookConflict()), "admission webhook denies the change of the lock"},
		"store full":       {apierrors.NewInternalError(errors.New("mvcc: database space exceeded")), "storage of the API server is full"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { refuseWrites(t, c.err, c.log) })
		})
	}
}

func webhookConflict() error {
	err := apierrors.NewConflict(leases, locktest.Name, nil)
	err.ErrStatus.Message = "admission webhook \"no.example.com\" denied the request: never"
	return err
}

func refuseWrites(t *testing.T, err error, log string) {
	const (
		minutes     = 10
		maxRequests = 12 * minutes
		maxLines    = 3 // the failure and, of the leader, the end of its term
	)
	store := locktest.NewStore(locktest.Lease)
	a, b := startTwo(t, store)
	history := store.History()
	renewed := history[len(history)-1].At
	requests := map[*candidate]int{}
	lines := map[*candidate]int{}
	for _, c := range []*candidate{a, b} {
		requests[c] = total(c.lock.Counts())
		lines[c] = c.log.Count()
		c.lock.On(func(r apiserver.Request) apiserver.Fault {
			if r.Verb == locktest.Create || r.Verb == locktest.Update {
				return apiserver.Fault{Err: err}
			}
			return apiserver.Fault{}
		})
	}
	advance(minutes * time.Minute)
	if a.Live() || len(a.Spans()) != 1 {
		t.Errorf("a leads %v after %d terms", a.Live(), len(a.Spans()))
	}
	if led := a.Last().To.Sub(renewed); led < renew-time.Second || led > renew {
		t.Errorf("a stopped %v after its last renewal, its validity is %v", led, renew)
	}
	for _, c := range []*candidate{a, b} {
		sent := total(c.lock.Counts()) - requests[c]
		if n := c.log.Count() - lines[c]; sent > maxRequests || n > maxLines || c.log.Count(log) != 1 {
			t.Errorf("%s sent %d requests and logged %d lines in %d minutes, want at most %d and %d, and once %q:\n%s",
				c.lock.Identity(), sent, n, minutes, maxRequests, maxLines, log, c.log.String())
		}
		c.lock.On(nil)
	}
	advance(2 * lease)
	if !a.Live() && !b.Live() {
		t.Error("no candidate leads after the failures")
	}
}

// barredLock rejects writes that make this candidate the holder, as a fence without a declaration of its service account does.
type barredLock struct {
	*k8sresourcelock.LeaseLock
	allowed atomic.Bool
	dryRuns atomic.Int32
}

func (l *barredLock) judge(record k8sresourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() && !l.allowed.Load() {
		return apierrors.NewForbidden(leases, locktest.Name, errors.New("ValidatingAdmissionPolicy 'fence' denied request: not declared"))
	}
	return nil
}

func (l *barredLock) Write(ctx context.Context, base k8sresourcelock.Snapshot, record k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	if err := l.judge(record); err != nil {
		return k8sresourcelock.Snapshot{}, err
	}
	return l.LeaseLock.Write(ctx, base, record, notes)
}

func (l *barredLock) DryRun(_ context.Context, _ k8sresourcelock.Snapshot, record k8sresourcelock.LeaderElectionRecord, _ map[string]string) error {
	l.dryRuns.Add(1)
	return l.judge(record)
}

// TestBarredChallenger checks that a challenger of higher rank that cannot acquire the lock costs the leader one term, and leads soon after
// the permission was granted.
func TestBarredChallenger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		a := startRanked(t, store, "a", "stable", "stable")
		events := &recorder{}
		lock := &barredLock{LeaseLock: store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: "b", Key: "canary", EventRecorder: events}).Lock.(*k8sresourcelock.LeaseLock)}
		b := prepareKey(t, store, "b", "canary", func(c *le.LeaderElectionConfig) {
			c.Ranked = true
			c.Lock = lock
		})
		b.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		b.start(t)
		advance(time.Minute)
		setDefault("canary", a, b)
		advance(time.Hour)
		if n := len(a.Spans()); n > 2 || !a.Live() || len(b.Spans()) > 0 {
			t.Errorf("a led %d terms, b %d, within an hour", n, len(b.Spans()))
		}
		if n := lock.dryRuns.Load(); n < 60 || n > 200 {
			t.Errorf("b sent %d dry runs in an hour, want one or two per lease", n)
		}
		if n := b.log.Count("dry run of an acquisition"); n != 1 {
			t.Errorf("b logged the reason %d times:\n%s", n, b.log.String())
		}
		if n := b.log.Count(); n > 6 {
			t.Errorf("b logged %d lines:\n%s", n, b.log.String())
		}
		if got, _, _ := events.take(); !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "the API server would reject the acquisition") }) {
			t.Errorf("no Event names the reason: %q", got)
		}
		if got := b.Status().Rejected; !strings.Contains(got, "not declared") {
			t.Errorf("the status of b is %q", got)
		}
		lock.allowed.Store(true)
		advance(time.Minute)
		if !b.Live() {
			t.Errorf("b (rejected: %q) does not lead a minute after the permission was granted:\n%s", b.Status().Rejected, b.log.String())
		}
	})
}
