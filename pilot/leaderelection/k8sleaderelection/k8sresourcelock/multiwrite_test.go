package k8sresourcelock_test

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Annotations are written to the object with the selected record. On the other object only a hold is replaced.
func TestMultiLock_Annotate(t *testing.T) {
	// begin writes a hold and a marker to both objects.
	begin := func(t *testing.T) (pairTrial, k8sresourcelock.Snapshot) {
		p := newPairTrial(t)
		base := p.held()
		if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 1), notes{hold: "old", marker: "v1 b 3"}); err != nil {
			t.Fatal(err)
		}
		return p, p.read()
	}
	writes := func(p pairTrial) int { return p.lock.Primary.Requests()[locktest.Update] }
	t.Run("hold of the other object is replaced", func(t *testing.T) {
		for _, next := range []string{"new", ""} {
			p, base := begin(t)
			want := notes{marker: "v1 b 3"}
			if next != "" {
				want[hold] = next
			}
			before := p.lock.Primary.Requests()
			snap, err := p.lock.Annotate(t.Context(), base, want)
			after := p.lock.Primary.Requests()
			if after[locktest.Get] != before[locktest.Get] || after[locktest.Update] != before[locktest.Update]+1 {
				t.Errorf("%q: requests %v, then %v", next, before, after)
			}
			if err != nil || snap.Annotations[hold] != next || p.read().Annotations[hold] != next {
				t.Errorf("%q: error %v, annotations %v, then %v", next, err, snap.Annotations, p.read().Annotations)
			}
			if other := p.Primary.Snapshot().Annotations; other[hold] != next || other[marker] != "v1 b 3" || other[needs] == "" {
				t.Errorf("%q: the primary's annotations %v", next, other)
			}
		}
	})
	t.Run("same hold or none", func(t *testing.T) {
		p, base := begin(t)
		before := writes(p)
		if _, err := p.lock.Annotate(t.Context(), base, notes{hold: "old", request: "{}"}); err != nil || writes(p) != before {
			t.Errorf("error %v, %d requests to the primary", err, writes(p)-before)
		}
		p.Primary.Annotate(hold, "")
		if _, err := p.lock.Annotate(t.Context(), p.read(), notes{hold: "new"}); err != nil || writes(p) != before {
			t.Errorf("error %v, %d requests to the primary", err, writes(p)-before)
		}
		if p.Primary.Snapshot().Annotations[hold] != "" {
			t.Error("the hold was written to both")
		}
	})
	t.Run("concurrent label, other term", func(t *testing.T) {
		p, base := begin(t)
		p.Primary.Annotate("example.com/x", "y")
		if _, err := p.lock.Annotate(t.Context(), base, notes{hold: "new"}); err != nil || p.Primary.Snapshot().Annotations[hold] != "new" {
			t.Errorf("error %v, the primary's annotations %v", err, p.Primary.Snapshot().Annotations)
		}
		p, base = begin(t)
		p.Primary.Put("c", termOf("c", 4, 1))
		if snap, err := p.lock.Annotate(t.Context(), base, notes{hold: "new"}); err != nil || p.Primary.Snapshot().Annotations[hold] != "old" || snap.Record.HolderIdentity != "c" {
			t.Errorf("error %v, the primary's annotations %v, shown %+v", err, p.Primary.Snapshot().Annotations, snap.Record)
		}
	})
	t.Run("record in one object only", func(t *testing.T) {
		p, _ := begin(t)
		p.Primary.Put("c", termOf("b", 3, 0)) // named by another writer
		p.Primary.Annotate(needs, "")
		p.Primary.Annotate(k8sresourcelock.MarkerAnnotation, "")
		p.Primary.Annotate(k8sresourcelock.NominatedAnnotation, "b")
		base := p.read()
		if !base.Half() {
			t.Fatalf("shown in %v", base.Parts)
		}
		if _, err := p.lock.Annotate(t.Context(), base, nil); err != nil || p.Secondary.Snapshot().Annotations[hold] != "old" {
			t.Errorf("error %v, the secondary's annotations %v", err, p.Secondary.Snapshot().Annotations)
		}
	})
	for name, fail := range map[string]func(pairTrial){
		"refused": func(p pairTrial) { p.lock.Primary.Forbid(locktest.Update) },
		"read forbidden": func(p pairTrial) {
			p.Primary.Annotate("example.com/x", "y")
			p.lock.Primary.Forbid(locktest.Get)
		},
		"conflicts repeatedly": func(p pairTrial) {
			disturb(p.lock.Primary, p.Primary)
		},
	} {
		t.Run("unknown result: "+name, func(t *testing.T) {
			p, base := begin(t)
			fail(p)
			before := writes(p)
			_, err := p.lock.Annotate(t.Context(), base, notes{hold: "new"})
			if err == nil || k8sresourcelock.IsConflict(err) || k8sresourcelock.IsRefused(err) {
				t.Errorf("error %v, want an unknown result", err)
			} else if forbidden := name != "conflicts repeatedly"; apierrors.IsForbidden(err) != forbidden {
				t.Errorf("error %v does not name the cause", err)
			}
			if p.Secondary.Snapshot().Annotations[hold] != "new" || writes(p)-before > 4 {
				t.Errorf("the secondary's annotations %v, %d requests", p.Secondary.Snapshot().Annotations, writes(p)-before)
			}
		})
	}
	t.Run("conflict on the selected object", func(t *testing.T) {
		p, base := begin(t)
		p.Secondary.Annotate("example.com/x", "y")
		if _, err := p.lock.Annotate(t.Context(), base, notes{hold: "new"}); !k8sresourcelock.IsConflict(err) {
			t.Errorf("error %v", err)
		}
		if _, err := p.lock.Write(t.Context(), base, base.Record, notes{hold: "new"}); !k8sresourcelock.IsConflict(err) {
			t.Errorf("written as notes alone: error %v", err)
		}
		if p.Primary.Snapshot().Annotations[hold] != "old" {
			t.Errorf("the primary's annotations %v", p.Primary.Snapshot().Annotations)
		}
	})
	t.Run("other object deleted", func(t *testing.T) {
		p, _ := begin(t)
		p.Primary.Delete()
		base := p.read()
		snap, err := p.lock.Annotate(t.Context(), base, notes{request: "{}"})
		if err != nil || snap.Parts[0] != base.Parts[0] || base.Parts[0].Version == 0 || snap.Parts[1].Version <= base.Parts[1].Version {
			t.Errorf("error %v, versions %v after %v", err, snap.Parts, base.Parts)
		}
	})
}

// noWarnings is a lock that does not implement Warning.
type noWarnings struct{ k8sresourcelock.Versioned }

func TestMultiLock_Events(t *testing.T) {
	pair, events := locktest.NewPair(), &k8sresourcelock.EventLog{}
	config := k8sresourcelock.ResourceLockConfig{Identity: "b", Key: "stable", EventRecorder: events}
	primary, secondary := pair.Primary.LockWith(config), pair.Secondary.LockWith(config)
	both := &k8sresourcelock.MultiLock{Primary: primary.Locker, Secondary: secondary.Locker}
	mute := &k8sresourcelock.MultiLock{Primary: noWarnings{primary}, Secondary: secondary.Locker}
	both.RecordEvent("leads")
	both.RecordWarning("is stuck")
	mute.RecordWarning("is stuck")
	want := []string{
		"Normal /v1, Kind=ConfigMap: b leads", "Normal coordination.k8s.io/v1, Kind=Lease: b leads",
		"Warning /v1, Kind=ConfigMap: b is stuck", "Warning coordination.k8s.io/v1, Kind=Lease: b is stuck",
		"Normal /v1, Kind=ConfigMap: b is stuck", "Warning coordination.k8s.io/v1, Kind=Lease: b is stuck",
	}
	if !slices.Equal(events.Texts, want) {
		t.Errorf("%q, want %q", events.Texts, want)
	}
	if both.Key() != "stable" || both.Identity() != "b" || (&k8sresourcelock.MultiLock{}).Key() != "" {
		t.Errorf("key %q, identity %q", both.Key(), both.Identity())
	}
}

// A renewal does not revert a hold that its holder has not seen, even if it only reaches the primary.
func TestMultiLock_HoldBeforePartialRenewal(t *testing.T) {
	for name, cut := range map[string]func(pairTrial){
		"the second write is lost": func(p pairTrial) {
			p.lock.Secondary.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheRequest})
		},
		"the first one's answer is lost": func(p pairTrial) { p.lock.Primary.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheReply}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base, err := p.lock.Write(t.Context(), p.held(), termOf("b", 3, 1), notes{hold: "old"})
			if err != nil {
				t.Fatal(err)
			}
			p.Secondary.Annotate(hold, "new")
			cut(p)
			if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 2), base.Annotations); err == nil {
				t.Fatal("written")
			}
			if got := p.read().Annotations[hold]; got != "new" || p.Primary.Snapshot().Annotations[hold] != "old" {
				t.Errorf("hold %q, want %q", got, "new")
			}
		})
	}
}

// dryRunRecorder records the records of dry runs.
type dryRunRecorder struct {
	locktest.Locker
	records []k8sresourcelock.LeaderElectionRecord
}

func (r *dryRunRecorder) DryRun(_ context.Context, _ k8sresourcelock.Snapshot, record k8sresourcelock.LeaderElectionRecord, _ map[string]string) error {
	r.records = append(r.records, record)
	return nil
}

// The dry run uses the record of the secondary, or an own record if there is none.
func TestMultiLock_DryRunRecord(t *testing.T) {
	short := termOf("c", 4, 0)
	short.LeaseDurationSeconds = 1
	for name, x := range map[string]struct {
		put  func(p pairTrial)
		want func(k8sresourcelock.LeaderElectionRecord) bool
	}{
		"a record": {func(p pairTrial) { p.Secondary.Put("c", short) }, func(r k8sresourcelock.LeaderElectionRecord) bool {
			return r == short
		}},
		"none": {func(pairTrial) {}, func(r k8sresourcelock.LeaderElectionRecord) bool {
			return r.HolderIdentity == "b" && r.HolderKey == "stable" && r.LeaderTransitions == 0 && r.LeaseDurationSeconds == 30
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			p.Primary.Put("c", termOf("c", 4, 0))
			x.put(p)
			secondary := &dryRunRecorder{Locker: p.lock.Secondary.Locker}
			lock := &k8sresourcelock.MultiLock{Primary: p.lock.Primary.Locker, Secondary: secondary}
			ask := map[string]string{k8sresourcelock.HandoverRequestAnnotation: `{"identity":"b"}`}
			base, err := lock.Read(t.Context())
			if err == nil {
				_, err = lock.Annotate(t.Context(), base, ask)
			}
			if err != nil || len(secondary.records) != 1 || !x.want(secondary.records[0]) {
				t.Errorf("error %v, dry runs %+v", err, secondary.records)
			}
		})
	}
}

// A nominee that may not write the secondary does not write the primary either. Otherwise the lock would be held by one object for a lease.
func TestMultiLock_DryRunOfNominee(t *testing.T) {
	p := newPairTrial(t)
	for _, store := range []*locktest.Store{p.Primary, p.Secondary} {
		store.Put("b", termOf("b", 4, 0))
		store.Annotate(k8sresourcelock.NominatedAnnotation, "b")
	}
	base := p.read()
	p.lock.Secondary.Forbid(locktest.Create, locktest.Update)
	first := p.Primary.Snapshot().ResourceVersion
	_, err := p.lock.Write(t.Context(), base, termOf("b", 4, 1), map[string]string{k8sresourcelock.MarkerAnnotation: "v1 b 4"})
	if !apierrors.IsForbidden(err) || !k8sresourcelock.IsRefused(err) {
		t.Errorf("error %v", err)
	}
	if p.Primary.Snapshot().ResourceVersion != first {
		t.Error("the primary was written")
	}
}
