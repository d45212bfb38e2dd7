package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// preparePair returns a ranked candidate with a MultiLock. Its lock field is the client of the primary. The default
// revision is stable.
func preparePair(t *testing.T, pair locktest.Pair, identity, revision string) (*candidate, *locktest.PairLock) {
	t.Helper()
	lock := pair.Lock(identity, revision)
	c := prepareKey(t, pair.Primary, identity, revision, func(c *le.LeaderElectionConfig) {
		c.Lock = lock.MultiLock
		c.Ranked = true
	})
	c.lock = lock.Primary
	setDefault("stable", c)
	return c, lock
}

// playPair runs f with a leader a of the default revision and a follower b of another revision.
func playPair(t *testing.T, f func(t *testing.T, pair locktest.Pair, a, b *candidate, lockA, lockB *locktest.PairLock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pair := locktest.NewPair()
		a, lockA := preparePair(t, pair, "a", "stable")
		a.start(t)
		advance(time.Second)
		b, lockB := preparePair(t, pair, "b", "canary")
		b.start(t)
		advance(time.Minute)
		if !a.Live() || b.Live() || b.GetLeader() != "a" || record(pair.Primary).HolderIdentity != "a" || record(pair.Secondary).HolderIdentity != "a" {
			t.Fatalf("a runs %v, b runs %v, records %+v and %+v", a.Live(), b.Live(), record(pair.Primary), record(pair.Secondary))
		}
		first := pair.Secondary.History()[0]
		if term := a.Status().Term; term.Token != first.Version || term.LockUID != string(pair.Secondary.Snapshot().UID) {
			t.Errorf("term %+v, first version of the secondary %d", term, first.Version)
		}
		f(t, pair, a, b, lockA, lockB)
	})
}

// Both objects have their own watch. The nominee may see the second write first, which is not a duplicate identity.
func TestMultiLock_WatchDelay(t *testing.T) {
	for name, half := range map[string]func(*locktest.PairLock) *locktest.Lock{
		"primary":   func(l *locktest.PairLock) *locktest.Lock { return l.Primary },
		"secondary": func(l *locktest.PairLock) *locktest.Lock { return l.Secondary },
	} {
		t.Run(name, func(t *testing.T) {
			playPair(t, func(t *testing.T, pair locktest.Pair, a, b *candidate, _, lockB *locktest.PairLock) {
				half(lockB).SetWatchDelay(200 * time.Millisecond)
				advance(time.Minute)
				began := time.Now()
				o := admin.Operator{Lock: pair.Lock("operator", "").MultiLock, Requester: "alice"}
				if err := o.Transfer(t.Context(), "b", "canary", "", time.Minute); err != nil {
					t.Error(err)
				}
				took := time.Since(began)
				advance(time.Millisecond)
				if !b.Live() || a.Live() || took > time.Second || b.log.Count("another live process") > 0 {
					t.Errorf("a runs %v, b runs %v after %v\n%s", a.Live(), b.Live(), took, b.log.String())
				}
			})
		})
	}
}

// A shared watch reads the Lease before it is established. If that read hangs, the watch starts again. Otherwise the
// follower would poll forever.
func TestMultiLock_WatchReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := locktest.NewPair()
		a, _ := preparePair(t, pair, "a", "stable")
		a.start(t)
		advance(time.Second)
		b, lock := preparePair(t, pair, "b", "stable")
		lease := lock.Secondary.Locker.(*k8sresourcelock.LeaseLock)
		lease.Shared = &k8sresourcelock.Shared{Client: lease.Client, MinSharedWatches: 1}
		b.start(t)
		advance(time.Minute)
		lock.Secondary.FailNext(locktest.Get, locktest.Fault{Hang: true})
		lock.Secondary.ExpireWatches()
		advance(time.Minute)
		reads := func() int {
			return lock.Primary.Requests()[locktest.Get] + lock.Secondary.Requests()[locktest.Get]
		}
		before := reads()
		advance(2 * time.Minute)
		if n := reads() - before; n > 0 || !a.Live() || b.Live() {
			t.Errorf("the follower read %d times in two minutes; a runs %v, b runs %v", n, a.Live(), b.Live())
		}
	})
}

// A leader that can write only the primary loses its term, and does not acquire it again because the dry run of the
// secondary fails.
func TestMultiLock_SecondaryForbidden(t *testing.T) {
	playPair(t, func(t *testing.T, _ locktest.Pair, a, b *candidate, lockA, _ *locktest.PairLock) {
		lockA.Secondary.Forbid(locktest.Create, locktest.Update)
		if advance(renew); a.Live() || a.IsLeader() {
			t.Error("a leads after the validity of its last write to both objects")
		}
		if advance(lease + retry); a.Live() || !b.Live() {
			t.Errorf("a runs %v, b runs %v\n%s%s", a.Live(), b.Live(), a.log.String(), b.log.String())
		}
	})
}

// An operator may use the MultiLock or one of its locks, and may write between the two writes of a renewal.
func TestMultiLock_PauseAndResume(t *testing.T) {
	for name, lock := range map[string]func(locktest.Pair) k8sresourcelock.Interface{
		"both":      func(p locktest.Pair) k8sresourcelock.Interface { return p.Lock("operator", "").MultiLock },
		"primary":   func(p locktest.Pair) k8sresourcelock.Interface { return p.Primary.Lock("operator", "").Locker },
		"secondary": func(p locktest.Pair) k8sresourcelock.Interface { return p.Secondary.Lock("operator", "").Locker },
	} {
		t.Run(name, func(t *testing.T) {
			playPair(t, func(t *testing.T, pair locktest.Pair, a, b *candidate, lockA, _ *locktest.PairLock) {
				o := admin.Operator{Lock: lock(pair), Requester: "alice"}
				betweenWrites := func(f func() error) {
					done := false
					lockA.Secondary.SetFault(func(v locktest.Verb) locktest.Fault {
						if v == locktest.Update && !done {
							done = true
							if err := f(); err != nil {
								t.Error(err)
							}
						}
						return locktest.Fault{}
					})
					advance(4 * retry)
				}
				betweenWrites(func() error { return o.Pause(t.Context(), "", time.Hour) })
				setDefault("canary", a, b)
				if advance(time.Minute); !a.Live() || b.Live() {
					t.Fatalf("paused: a runs %v, b runs %v", a.Live(), b.Live())
				}
				for _, store := range []*locktest.Store{pair.Primary, pair.Secondary} {
					if store.Snapshot().Annotations[k8sresourcelock.HoldAnnotation] == "" {
						t.Errorf("%s has no hold", store.Kind())
					}
				}
				betweenWrites(func() error { return o.Resume(t.Context()) })
				// A write of one object must not restore the hold.
				pair.Primary.Annotate("example.com/n", "1")
				pair.Secondary.Annotate("example.com/n", "1")
				if advance(time.Minute); a.Live() || !b.Live() {
					t.Errorf("resumed: a runs %v, b runs %v\n%s", a.Live(), b.Live(), a.log.String()+b.log.String())
				}
			})
		})
	}
}
