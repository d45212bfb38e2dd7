package k8sresourcelock_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// termOf returns a record of this holder and term. later moves its times by seconds.
func termOf(holder string, term, later int) k8sresourcelock.LeaderElectionRecord {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5+later, 0, time.UTC))
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: holder, HolderKey: "stable", LeaseDurationSeconds: 30, AcquireTime: at, RenewTime: at, LeaderTransitions: term,
	}
}

type pairTrial struct {
	*testing.T
	locktest.Pair
	lock *locktest.PairLock
}

func newPairTrial(t *testing.T) pairTrial {
	pair := locktest.NewPair()
	return pairTrial{t, pair, pair.Lock("b", "stable")}
}

func (t pairTrial) read() k8sresourcelock.Snapshot {
	t.Helper()
	snap, err := t.lock.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// held makes b the holder of both objects, in term 3.
func (t pairTrial) held() k8sresourcelock.Snapshot {
	t.Helper()
	snap, err := t.lock.Write(t.Context(), k8sresourcelock.Snapshot{}, termOf("b", 3, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Half() || t.Primary.Snapshot().Record.HolderIdentity != "b" || t.Secondary.Snapshot().Record.HolderIdentity != "b" {
		t.Fatalf("not held: %+v", snap)
	}
	return snap
}

// betweenTheWrites runs f after the primary and before the secondary is written.
func (t pairTrial) betweenTheWrites(f func()) {
	written := t.Primary.Version()
	done := false
	t.lock.Secondary.SetFault(func(v locktest.Verb) locktest.Fault {
		if !done && v == locktest.Update && t.Primary.Version() > written {
			done = true
			f()
		}
		return locktest.Fault{}
	})
}

func TestMultiLock_SecondaryChanged(t *testing.T) {
	for name, c := range map[string]struct {
		write  k8sresourcelock.LeaderElectionRecord
		happen func(pairTrial)
		holder string
	}{
		"renewal, and a candidate of step three acquires the secondary": {termOf("b", 3, 1), func(p pairTrial) { p.Secondary.Put("l", termOf("l", 4, 0)) }, "l"},
		"acquisition, and the secondary is unreadable":                  {termOf("b", 5, 1), func(p pairTrial) { p.Secondary.Corrupt() }, ""},
		"renewal, and the API server rejects the read of a new hold":    {termOf("b", 3, 1), func(p pairTrial) { p.Secondary.Annotate(hold, "new"); p.lock.Secondary.Forbid(locktest.Get) }, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base := p.held()
			p.betweenTheWrites(func() { c.happen(p) })
			_, err := p.lock.Write(t.Context(), base, c.write, nil)
			if err == nil || k8sresourcelock.IsConflict(err) || !strings.Contains(err.Error(), "write secondary after primary") {
				t.Errorf("error %v, want an unknown result", err)
			}
			_, errRead := p.lock.Read(t.Context())
			if rejected := strings.Contains(name, "rejects"); apierrors.IsForbidden(err) != rejected || apierrors.IsForbidden(errRead) != rejected {
				t.Errorf("error %v, then %v", err, errRead)
			}
			if got := p.Secondary.Snapshot().Record.HolderIdentity; got != c.holder {
				t.Errorf("the Lease's holder %q, want %q", got, c.holder)
			}
		})
	}
}

func TestMultiLock_PrimaryChanged(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	p.Primary.Annotate("example.com/x", "y")
	before := p.Secondary.Version()
	if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 1), nil); !k8sresourcelock.IsConflict(err) || p.Secondary.Version() != before {
		t.Errorf("error %v, the secondary changed from version %d to %d", err, before, p.Secondary.Version())
	}
}

func TestPair_DeepCopy(t *testing.T) {
	p := newPairTrial(t)
	pair := p.held().Object.(*k8sresourcelock.Pair)
	pair.Primary = k8sresourcelock.Snapshot{}
	copied := pair.DeepCopyObject().(*k8sresourcelock.Pair)
	if !reflect.DeepEqual(pair, copied) || pair.Secondary.Object == copied.Secondary.Object {
		t.Errorf("copied %+v as %+v", pair, copied)
	}
}

const (
	hold    = k8sresourcelock.HoldAnnotation
	request = k8sresourcelock.HandoverRequestAnnotation
	marker  = k8sresourcelock.MarkerAnnotation
	needs   = k8sresourcelock.MultiLockAnnotation
)

type notes = map[string]string

// unnumbered is a lock that returns no decimal version for its writes.
type unnumbered struct{ locktest.Locker }

func (u unnumbered) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, annotations notes) (k8sresourcelock.Snapshot, error) {
	snap, err := u.Locker.Write(ctx, base, r, annotations)
	snap.ResourceVersion = "1a"
	return snap, err
}

func TestMultiLock_InvalidLocksAndBases(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	good := p.lock
	for name, lock := range map[string]*k8sresourcelock.MultiLock{
		"none":            {},
		"no secondary":    {Primary: good.Primary.Locker},
		"plain primary":   {Primary: good.Primary.Plain(), Secondary: good.Secondary.Locker},
		"plain secondary": {Primary: good.Primary.Locker, Secondary: good.Secondary.Plain()},
	} {
		t.Run(name, func(t *testing.T) {
			_, errRead := lock.Read(t.Context())
			_, errWrite := lock.Write(t.Context(), base, termOf("b", 3, 1), nil)
			_, errNotes := lock.Annotate(t.Context(), base, nil)
			_, _, errGet := lock.Get(t.Context())
			for _, err := range []error{lock.Validate(), errRead, errWrite, errNotes, errGet, lock.Create(t.Context(), termOf("b", 3, 1))} {
				if err == nil || !strings.Contains(err.Error(), "Versioned") || k8sresourcelock.IsConflict(err) {
					t.Errorf("error %v, want the missing lock", err)
				}
			}
			lock.RecordEvent("x")
			lock.RecordWarning("x")
		})
	}
	for i, odd := range []*k8sresourcelock.MultiLock{
		{Primary: good.Primary.Locker, Secondary: unnumbered{good.Secondary.Locker}},
		{Primary: unnumbered{good.Primary.Locker}, Secondary: good.Secondary.Locker},
	} {
		if _, err := odd.Write(t.Context(), p.read(), termOf("b", 3, i+1), nil); err == nil || k8sresourcelock.IsConflict(err) || !strings.Contains(err.Error(), "1a") {
			t.Errorf("version that is not a number: error %v", err)
		}
	}
	other := base
	other.UID = ""
	if _, err := good.Write(t.Context(), other, termOf("b", 3, 1), nil); err == nil ||
		!strings.HasPrefix(err.Error(), "lock istio-system/istio-leader: ") || !strings.Contains(err.Error(), "not its secondary's") {
		t.Errorf("base without the UID of the pair: error %v", err)
	}
	if _, err := good.Annotate(t.Context(), k8sresourcelock.Snapshot{}, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "lock istio-system/istio-leader: annotate: ") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("annotations of no object: error %v", err)
	}
	if none := (&k8sresourcelock.MultiLock{}); none.Identity() != "" || none.Key() != "" || none.Describe() != "" {
		t.Errorf("a MultiLock without locks is %s of %s/%s", none.Describe(), none.Identity(), none.Key())
	}
	base.Object = p.Primary.Snapshot().Object
	if _, err := good.Write(t.Context(), base, termOf("b", 3, 1), nil); err == nil || !strings.Contains(err.Error(), "base of the write is a *v1.ConfigMap") {
		t.Errorf("base of one object: error %v", err)
	}
}

// If one of the two locks cannot be watched, neither is.
func TestMultiLock_SubscribeUnwatched(t *testing.T) {
	for _, unwatched := range []string{"primary", "secondary"} {
		synctest.Test(t, func(t *testing.T) {
			good := locktest.NewPair().Lock("b", "stable")
			lock := &k8sresourcelock.MultiLock{Primary: good.Primary.Locker, Secondary: good.Secondary.Locker}
			if unwatched == "primary" {
				lock.Primary = good.Primary.Unwatched()
			} else {
				lock.Secondary = good.Secondary.Unwatched()
			}
			if watch := k8sresourcelock.Subscribe(t.Context(), lock, func() {}); watch != nil {
				t.Errorf("%s cannot be watched, and there is a subscription", unwatched)
			}
			synctest.Wait()
			if n := good.Primary.Watching() + good.Secondary.Watching(); n != 0 {
				t.Errorf("%s cannot be watched, and of the other there are %d watches", unwatched, n)
			}
			if err := lock.Validate(); err != nil { // it is polled
				t.Error(err)
			}
		})
	}
}

func TestMultiLock_ValidateBoth(t *testing.T) {
	pair := locktest.NewPair()
	for name, c := range map[string]struct {
		lock *locktest.PairLock
		want string
	}{
		"identity": {pair.Lock("b c", "stable"), "white space"},
		"key":      {pair.Lock("b", "sta ble"), "white space"},
	} {
		good := pair.Lock("b", "stable")
		for which, lock := range map[string]*k8sresourcelock.MultiLock{
			"configmap lock": {Primary: c.lock.Primary.Locker, Secondary: good.Secondary.Locker},
			"lease lock":     {Primary: good.Primary.Locker, Secondary: c.lock.Secondary.Locker},
		} {
			if err := lock.Validate(); err == nil || !strings.Contains(err.Error(), which) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of the %s: %v", name, which, err)
			}
		}
	}
	if err := pair.Lock("b", "stable").Validate(); err != nil {
		t.Error(err)
	}
	for identity, key := range map[string]string{"b": "canary", "c": "stable"} {
		two := &k8sresourcelock.MultiLock{Primary: pair.Lock("b", "stable").Primary.Locker, Secondary: pair.Lock(identity, key).Secondary.Locker}
		if err := two.Validate(); err == nil || !strings.Contains(err.Error(), "Use one identity and key") {
			t.Errorf("two candidates: %v", err)
		}
	}
}

// A nomination has no MultiLockAnnotation. The nominee writes it.
func TestMultiLock_Handover(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	if _, err := p.lock.Write(t.Context(), base, termOf("c", 4, 1), notes{k8sresourcelock.NominatedAnnotation: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, half := range []*locktest.Store{p.Primary, p.Secondary} {
		if got := half.Snapshot(); got.Annotations[needs] != "" || got.Record.HolderIdentity != "c" {
			t.Errorf("%s: %+v with %v", half.Kind(), got.Record, got.Annotations)
		}
	}
}

// disturb changes the object before each update of the lock arrives.
func disturb(lock *locktest.Lock, store *locktest.Store) {
	n := 0
	lock.SetFault(func(v locktest.Verb) locktest.Fault {
		if v == locktest.Update {
			n++
			store.Annotate("example.com/x", strings.Repeat("y", n))
		}
		return locktest.Fault{}
	})
}
