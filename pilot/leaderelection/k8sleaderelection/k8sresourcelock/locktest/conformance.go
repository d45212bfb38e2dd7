package locktest

import (
	"bytes"
	"context"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Harness gives Conformance a store: one lock object, absent at first,
// and ways to touch it that no candidate has.
type Harness struct {
	// Lock makes another candidate's lock on the object.
	Lock func(identity, key string) Subject
	// Mutate changes the object, or makes it, as an administrator would.
	Mutate func(change func(obj Object))
	// Delete removes the object, which exists.
	Delete func()
	// Owner is an object of the same namespace that the lock can be owned by, so that
	// a garbage collector leaves the lock alone. Optional.
	Owner metav1.OwnerReference
	// Neighbour writes another object of the kind into the same namespace.
	Neighbour func()
	// Merged says that the lock is two objects: a watch shows the one's changes beside
	// any of the other's, and may pass over what was there for a moment only.
	Merged bool
	// Ancient is a resourceVersion that no watch can resume from any more. A merged lock has none to resume from.
	Ancient string
}

// Harness gives the store's one object to Conformance.
func (s *Store) Harness() Harness {
	return Harness{
		Lock:      func(identity, key string) Subject { return s.Lock(identity, key) },
		Mutate:    s.Mutate,
		Delete:    func() { s.Delete() },
		Neighbour: s.Neighbour,
		Ancient:   "1",
	}
}

// patience bounds every wait of the suite. It is only reached by a lock that fails.
const patience = 30 * time.Second

// Conformance checks a kind of lock against all that electors rely on. harness makes
// a fresh object for each check.
func Conformance(t *testing.T, harness func(t *testing.T) Harness) {
	for _, group := range [][]check{readChecks, writeChecks, foreignChecks, watchChecks, plainChecks} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				h := harness(t)
				if h.Neighbour == nil || h.Ancient == "" && !h.Merged {
					t.Fatal("the harness lacks Neighbour or Ancient, without which checks would prove nothing")
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

// trial is one check under way.
type trial struct {
	*testing.T
	Harness
	ctx context.Context
}

// must unwraps a result that the check cannot go on without.
func (t *trial) must(snap k8sresourcelock.Snapshot, err error) k8sresourcelock.Snapshot {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// acquire creates the object with a record of identity's.
func (t *trial) acquire(l Subject) k8sresourcelock.Snapshot {
	t.Helper()
	return t.must(l.Write(t.ctx, k8sresourcelock.Snapshot{}, record(l, 1), nil))
}

func (t *trial) wantConflict(err error) {
	t.Helper()
	if !k8sresourcelock.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
}

// wantStored checks that the store has exactly this record, by another lock's eyes.
func (t *trial) wantStored(want k8sresourcelock.LeaderElectionRecord) {
	t.Helper()
	got := t.must(t.Lock("observer", "").Read(t.ctx))
	t.wantRecord(got, want)
}

func (t *trial) wantRecord(got k8sresourcelock.Snapshot, want k8sresourcelock.LeaderElectionRecord) {
	t.Helper()
	if !got.Exists || got.Unreadable != nil || got.Raw == nil || !sameRecord(got.Record, want) {
		t.Errorf("stored: %+v (exists %v, unreadable %v, raw %q)\n  want: %+v", got.Record, got.Exists, got.Unreadable, got.Raw, want)
	}
}

func (t *trial) wantNotes(got k8sresourcelock.Snapshot, want map[string]string) {
	t.Helper()
	if !maps.Equal(got.Annotations, want) {
		t.Errorf("notes %v, want %v", got.Annotations, want)
	}
}

// wantLater checks that the version has grown; of a merged lock, the sum of both objects' too.
func (t *trial) wantLater(later, earlier k8sresourcelock.Snapshot) {
	t.Helper()
	if number(t, later.ResourceVersion).Cmp(number(t, earlier.ResourceVersion)) <= 0 {
		t.Errorf("version %q after %q: it must grow", later.ResourceVersion, earlier.ResourceVersion)
	}
	sum := func(p [2]k8sresourcelock.Part) uint64 { return p[0].Version + p[1].Version }
	if t.Merged && sum(later.Parts) <= sum(earlier.Parts) {
		t.Errorf("versions %v after %v: they must grow", later.Parts, earlier.Parts)
	}
}

// wantState checks that two snapshots are of one state of one object, or of the same two.
func (t *trial) wantState(is, want k8sresourcelock.Snapshot) {
	t.Helper()
	named := uids(is)
	if t.Merged && slices.Contains(named[:], "") || is.UID == "" || is.UID != want.UID || is.ResourceVersion != want.ResourceVersion || is.Parts != want.Parts || !bytes.Equal(is.Raw, want.Raw) {
		t.Errorf("  is %s %s %v %s\nwant %s %s %v %s", is.UID, is.ResourceVersion, is.Parts, is.Raw, want.UID, want.ResourceVersion, want.Parts, want.Raw)
	}
}

// uids names the object, or both of a merged lock.
func uids(s k8sresourcelock.Snapshot) [3]types.UID {
	return [3]types.UID{s.UID, s.Parts[0].UID, s.Parts[1].UID}
}

func number(t *trial, version string) *big.Int {
	t.Helper()
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		t.Fatalf("version %q is no decimal number", version)
	}
	return n
}

// sameRecord compares times as instants.
func sameRecord(a, b k8sresourcelock.LeaderElectionRecord) bool {
	times := a.AcquireTime.Equal(&b.AcquireTime) && a.RenewTime.Equal(&b.RenewTime)
	a.AcquireTime, a.RenewTime = b.AcquireTime, b.RenewTime
	return times && a == b
}

// record is candidate l's n-th record: any two of them differ.
func record(l Subject, n int) k8sresourcelock.LeaderElectionRecord {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: l.Identity(), HolderKey: l.Key(), LeaseDurationSeconds: 30,
		AcquireTime: metav1.NewTime(start), RenewTime: metav1.NewTime(start.Add(time.Duration(n) * time.Second)),
		LeaderTransitions: n,
	}
}
