package locktest

import (
	"bytes"
	"context"
	"maps"
	"math/big"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Harness provides one lock object, absent at first, and operations on it that no candidate has.
type Harness struct {
	// Lock returns the lock of another candidate.
	Lock func(identity, key string) k8sresourcelock.Lock
	// Mutate changes or creates the object without a guard, as an administrator does.
	Mutate func(change func(obj apiserver.Object))
	// Delete deletes the object.
	Delete func()
	// Owner is an object of the same namespace that can own the lock, so that the garbage collector does not
	// delete the lock. Optional.
	Owner metav1.OwnerReference
	// WriteOther writes another object of the same type in the same namespace.
	WriteOther func()
}

// Harness returns a Harness for the object of the store.
func (s *Store) Harness() Harness {
	return Harness{
		Lock:       func(identity, key string) k8sresourcelock.Lock { return s.Lock(identity, key) },
		Mutate:     s.Mutate,
		Delete:     func() { s.Delete() },
		WriteOther: s.WriteOther,
	}
}

// patience limits each check of the suite. A check sends about 20 requests, and an API server may need seconds for each.
const patience = 3 * time.Minute

// Conformance runs the suite. harness returns a new object for each check.
func Conformance(t *testing.T, harness func(t *testing.T) Harness) {
	for _, group := range [][]check{readChecks, writeChecks, foreignChecks, watchChecks, plainChecks} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				h := harness(t)
				if h.WriteOther == nil {
					t.Fatal("the harness lacks WriteOther, without which checks would prove nothing")
				}
				c.run(&trial{T: t, Harness: h, ctx: ctx})
			})
		}
	}
}

type check struct {
	name string
	run  func(*trial)
}

// trial is one running check.
type trial struct {
	*testing.T
	Harness
	ctx context.Context
}

// must returns snap. It ends the check if err is not nil.
func (t *trial) must(snap k8sresourcelock.Snapshot, err error) k8sresourcelock.Snapshot {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// acquire creates the object with the first record of l.
func (t *trial) acquire(l k8sresourcelock.Lock) k8sresourcelock.Snapshot {
	t.Helper()
	return t.must(l.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(l, 1), nil))
}

func (t *trial) wantConflict(err error) {
	t.Helper()
	if !k8sresourcelock.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
}

// wantStored checks the stored record with the lock of another candidate.
func (t *trial) wantStored(want k8sresourcelock.LeaderElectionRecord) {
	t.Helper()
	got := t.must(t.Lock("observer", "").Read(t.ctx))
	t.wantRecord(got, want)
}

// wantRecord checks the record of a snapshot. A snapshot never keeps managedFields in memory.
func (t *trial) wantRecord(got k8sresourcelock.Snapshot, want k8sresourcelock.LeaderElectionRecord) {
	t.Helper()
	if !got.Exists || got.Unreadable != nil || got.Raw == nil || !equality.Semantic.DeepEqual(got.Record, want) {
		t.Errorf("stored: %+v (exists %v, unreadable %v, raw %q)\n  want: %+v", got.Record, got.Exists, got.Unreadable, got.Raw, want)
		return
	}
	if obj := got.Object.(apiserver.Object); len(obj.GetManagedFields()) > 0 {
		t.Errorf("managedFields of %v", obj)
	}
}

func (t *trial) wantAnnotations(got k8sresourcelock.Snapshot, want map[string]string) {
	t.Helper()
	if !maps.Equal(got.Annotations, want) {
		t.Errorf("annotations %v, want %v", got.Annotations, want)
	}
}

// wantLater checks that the version has grown.
func (t *trial) wantLater(later, earlier k8sresourcelock.Snapshot) {
	t.Helper()
	if number(t, later.ResourceVersion).Cmp(number(t, earlier.ResourceVersion)) <= 0 {
		t.Errorf("version %q after %q: it must grow", later.ResourceVersion, earlier.ResourceVersion)
	}
}

// wantState checks that both snapshots show the same state.
func (t *trial) wantState(is, want k8sresourcelock.Snapshot) {
	t.Helper()
	if is.UID == "" || is.UID != want.UID || is.ResourceVersion != want.ResourceVersion || !bytes.Equal(is.Raw, want.Raw) {
		t.Errorf("  is %s %s %s\nwant %s %s %s", is.UID, is.ResourceVersion, is.Raw, want.UID, want.ResourceVersion, want.Raw)
	}
}

func number(t *trial, version string) *big.Int {
	t.Helper()
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		t.Fatalf("version %q is no decimal number", version)
	}
	return n
}

// recordOf returns the n-th record of l. All records differ.
func recordOf(l k8sresourcelock.Lock, n int) k8sresourcelock.LeaderElectionRecord {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: l.Identity(), HolderKey: l.Key(), LeaseDurationSeconds: 30,
		AcquireTime: metav1.NewTime(start), RenewTime: metav1.NewTime(start.Add(time.Duration(n) * time.Second)),
		LeaderTransitions: n,
	}
}
