package k8sresourcelock_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// termOf is a record of that holder's n-th term, or so many seconds later.
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

// held has b stand in both objects, in term 3.
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

// betweenTheWrites runs f when the primary was written and the secondary is next.
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

func TestMultiLockConflictOnThePrimaryWritesNothing(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	p.Primary.Annotate("example.com/x", "y")
	before := p.Secondary.Version()
	_, err := p.lock.Write(t.Context(), base, termOf("b", 3, 1), nil)
	if !k8sresourcelock.IsConflict(err) || p.Secondary.Snapshot().Record.RenewTime != termOf("b", 3, 0).RenewTime || p.Secondary.Version() != before {
		t.Errorf("error %v, the Lease %+v", err, p.Secondary.Snapshot().Record)
	}
}

func TestMultiLockRenewsPastARequestOnTheSecondary(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	const request = `{"identity":"l"}`
	p.betweenTheWrites(func() { p.Secondary.Annotate(k8sresourcelock.HandoverRequestAnnotation, request) })
	snap, err := p.lock.Write(t.Context(), base, termOf("b", 3, 1), nil)
	if err != nil || snap.Half() || snap.Annotations[k8sresourcelock.HandoverRequestAnnotation] != request {
		t.Errorf("error %v, notes %v", err, snap.Annotations)
	}
}

func TestMultiLockDoesNotFinishWhatOthersHaveDecided(t *testing.T) {
	for name, c := range map[string]struct {
		write  k8sresourcelock.LeaderElectionRecord
		happen func(pairTrial)
		holder string
	}{
		"renewal, and one who needs the secondary takes it": {termOf("b", 3, 1), func(p pairTrial) { p.Secondary.Put("l", termOf("l", 4, 0)) }, "l"},
		"claim, and one who needs the secondary takes it":   {termOf("b", 5, 1), func(p pairTrial) { p.Secondary.Put("l", termOf("l", 4, 0)) }, "l"},
		"renewal, and the secondary is made anew": {termOf("b", 3, 1), func(p pairTrial) {
			p.Secondary.Delete()
			p.Secondary.Put("", termOf("", 0, 0))
		}, ""},
		"claim, and the secondary is made anew": {termOf("b", 5, 1), func(p pairTrial) {
			p.Secondary.Delete()
			p.Secondary.Put("", termOf("", 0, 0))
		}, ""},
		"claim, and the secondary is unreadable":         {termOf("b", 5, 1), func(p pairTrial) { p.Secondary.Corrupt() }, ""},
		"claim, and a later term has ended":              {termOf("b", 5, 1), func(p pairTrial) { p.Secondary.Put("l", termOf("", 7, 0)) }, ""},
		"release, and one who needs the secondary is in": {termOf("", 3, 1), func(p pairTrial) { p.Secondary.Put("l", termOf("l", 4, 0)) }, "l"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base := p.held()
			p.betweenTheWrites(func() { c.happen(p) })
			_, err := p.lock.Write(t.Context(), base, c.write, nil)
			if err == nil || k8sresourcelock.IsConflict(err) || !strings.Contains(err.Error(), "the primary was written") {
				t.Errorf("error %v, want one that leaves it open", err)
			}
			if got := p.Secondary.Snapshot().Record.HolderIdentity; got != c.holder {
				t.Errorf("the Lease's holder %q, want %q", got, c.holder)
			}
		})
	}
}

func TestMultiLockClaimsPastTheFormerLeadersSecondWrite(t *testing.T) {
	for name, late := range map[string]func(pairTrial){
		"release": func(p pairTrial) { p.Secondary.Put("a", termOf("", 3, 1)) },
		"handover": func(p pairTrial) {
			p.Secondary.Put("a", termOf("b", 4, 1))
			p.Secondary.Annotate(k8sresourcelock.NominatedAnnotation, "b")
		},
		"renewal": func(p pairTrial) {
			r := termOf("b", 3, 0)
			r.RenewTime = termOf("b", 3, 1).RenewTime
			p.Secondary.Put("b", r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base := p.held()
			p.betweenTheWrites(func() { late(p) })
			snap, err := p.lock.Write(t.Context(), base, termOf("b", 4, 2), nil)
			if err != nil || snap.Half() || p.Secondary.Snapshot().Record.RenewTime != termOf("b", 4, 2).RenewTime {
				t.Errorf("error %v, the Lease %+v", err, p.Secondary.Snapshot().Record)
			}
		})
	}
}

// Both writes were acknowledged, but when the second was the first no longer stood.
func TestMultiLockIsNotHeldWhenThePrimaryWasTakenMeanwhile(t *testing.T) {
	p := newPairTrial(t)
	base := p.held()
	p.betweenTheWrites(func() {
		p.Primary.Put("c", termOf("c", 4, 0))
		p.read() // as a watch would show it
	})
	if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 1), nil); err == nil || k8sresourcelock.IsConflict(err) {
		t.Errorf("error %v, want one that leaves it open", err)
	}
	if snap := p.read(); snap.Record.HolderIdentity != "c" || !snap.Half() {
		t.Errorf("shown: %+v", snap.Record)
	}
}

func TestMultiLockWritesNotesWhereTheRecordIsShown(t *testing.T) {
	p := newPairTrial(t)
	p.held()
	p.Primary.Put("c", termOf("c", 4, 0)) // a replica of the first step leads
	lease := p.Secondary.Version()
	base := p.read()
	notes := map[string]string{k8sresourcelock.HandoverRequestAnnotation: `{"identity":"b"}`}
	snap, err := p.lock.Annotate(t.Context(), base, notes)
	if err != nil || snap.Annotations[k8sresourcelock.HandoverRequestAnnotation] == "" {
		t.Fatalf("error %v, notes %v", err, snap.Annotations)
	}
	if p.Primary.Snapshot().Annotations[k8sresourcelock.HandoverRequestAnnotation] == "" || p.Secondary.Snapshot().Annotations[k8sresourcelock.HandoverRequestAnnotation] != "" {
		t.Error("the request is not where the leader looks for it, and only there")
	}
	if last := p.Secondary.History(); last[len(last)-1].Version > lease {
		t.Error("the Lease was written")
	}
}

func TestMultiLockRehearsesAClaim(t *testing.T) {
	p := newPairTrial(t)
	p.lock.Secondary.Forbid(locktest.Create)
	if _, err := p.lock.Write(t.Context(), k8sresourcelock.Snapshot{}, termOf("b", 0, 0), nil); err == nil || k8sresourcelock.IsConflict(err) {
		t.Errorf("error %v, want the server's refusal", err)
	}
	if p.Primary.Snapshot().Exists {
		t.Error("the primary was written")
	}
}

func TestMultiLockValidate(t *testing.T) {
	store := locktest.NewPair()
	good := store.Lock("b", "stable")
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, lock := range map[string]*k8sresourcelock.MultiLock{
		"no locks":       {},
		"a plain lock":   {Primary: good.Primary.Plain(), Secondary: good.Secondary.Locker},
		"two candidates": {Primary: good.Primary.Locker, Secondary: store.Lock("c", "stable").Secondary.Locker},
	} {
		if lock.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
		t.Logf("%s %s %s", lock.Identity(), lock.Key(), lock.Describe()) // must not panic
	}
}
