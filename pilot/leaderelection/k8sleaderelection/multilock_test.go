package k8sleaderelection_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// enterPair runs a candidate that holds both objects of a pair. Its lock field is its way
// to the primary.
func enterPair(t *testing.T, pair locktest.Pair, identity string) (*candidate, *locktest.PairLock) {
	t.Helper()
	lock := pair.Lock(identity, "stable")
	c := prepare(t, pair.Primary, identity, func(c *le.LeaderElectionConfig) { c.Lock = lock.MultiLock })
	c.lock = lock.Primary
	c.start(t)
	return c, lock
}

func TestBothLocks(t *testing.T) {
	play := func(name string, f func(t *testing.T, pair locktest.Pair, a, b *candidate, ways *locktest.PairLock)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pair := locktest.NewPair()
				a, ways := enterPair(t, pair, "a")
				pass(time.Second)
				b, _ := enterPair(t, pair, "b")
				pass(time.Minute)
				if !a.isLive() || b.isLive() || record(pair.Primary).HolderIdentity != "a" || record(pair.Secondary).HolderIdentity != "a" {
					t.Fatalf("a live %v, b live %v, records %+v and %+v", a.isLive(), b.isLive(), record(pair.Primary), record(pair.Secondary))
				}
				f(t, pair, a, b, ways)
			})
		})
	}
	play("the token is the secondary's", func(t *testing.T, pair locktest.Pair, a, _ *candidate, _ *locktest.PairLock) {
		first := pair.Secondary.History()[0]
		term := a.Status().Term
		if term.Token != first.Version || term.LockUID != string(pair.Secondary.Snapshot().UID) {
			t.Errorf("term %+v, the Lease's first version %d", term, first.Version)
		}
	})
	play("a release is followed at once", func(t *testing.T, pair locktest.Pair, a, b *candidate, _ *locktest.PairLock) {
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !b.isLive() || b.lastStart() != a.lastStop() {
			t.Errorf("b live %v", b.isLive())
		}
	})
	for name, which := range map[string]func(locktest.Pair) *locktest.Store{
		"primary":   func(p locktest.Pair) *locktest.Store { return p.Primary },
		"secondary": func(p locktest.Pair) *locktest.Store { return p.Secondary },
	} {
		for what, harm := range map[string]func(*locktest.Store){
			"deleted":    func(s *locktest.Store) { s.Delete() },
			"emptied":    (*locktest.Store).Empty,
			"unreadable": (*locktest.Store).Corrupt,
		} {
			play("the "+name+" is "+what, func(t *testing.T, pair locktest.Pair, a, b *candidate, _ *locktest.PairLock) {
				harm(which(pair))
				synctest.Wait()
				if a.isLive() && a.terms() == 1 {
					t.Fatal("a goes on in the term whose record is gone")
				}
				pass(2*lease + time.Minute)
				if a.isLive() == b.isLive() {
					t.Errorf("a live %v, b live %v", a.isLive(), b.isLive())
				}
			})
		}
	}
	play("a request hangs between the two", func(t *testing.T, pair locktest.Pair, a, b *candidate, ways *locktest.PairLock) {
		ways.Secondary.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		last := record(pair.Secondary).RenewTime.Time
		pass(renew)
		if a.isLive() || a.IsLeader() {
			t.Errorf("a acts %v after the last write that reached both", time.Since(last))
		}
	})
}

// A candidate that may not write Leases must not take the ConfigMap from those who need
// that alone.
func TestWithoutRightsToTheSecondaryThePrimaryIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := locktest.NewPair()
		b := pair.Lock("b", "stable")
		b.Secondary.Forbid(locktest.Create, locktest.Update)
		c := prepare(t, pair.Primary, "b", func(c *le.LeaderElectionConfig) { c.Lock = b.MultiLock })
		c.start(t)
		pass(time.Minute)
		if n := len(pair.Primary.History()); n != 0 || c.isLive() {
			t.Errorf("the ConfigMap was written %d times by one that can never lead", n)
		}
		old := enter(t, pair.Primary, "a")
		pass(time.Second)
		if !old.isLive() {
			t.Error("the old replica does not lead")
		}
	})
}

// The nominee's claim and the former leader's second write do not get in each other's way.
func TestHandoverBetweenBothLocksIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := locktest.NewPair()
		all := map[string]*candidate{}
		for identity, revision := range map[string]string{"a": "stable", "b": "canary"} {
			lock := pair.Lock(identity, revision)
			lock.Primary.SetLatency(time.Millisecond, time.Millisecond)
			lock.Secondary.SetLatency(time.Millisecond, time.Millisecond)
			c := prepareKey(t, pair.Primary, identity, revision, func(c *le.LeaderElectionConfig) { c.Lock, c.Ranked = lock.MultiLock, true })
			c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
			all[identity] = c
		}
		a, b := all["a"], all["b"]
		a.start(t)
		pass(time.Second)
		b.start(t)
		pass(time.Minute)
		flip := time.Now()
		setDefault("canary", a, b)
		pass(time.Second)
		if !b.isLive() || a.isLive() {
			t.Fatalf("a live %v, b live %v", a.isLive(), b.isLive())
		}
		if took := b.lastStart().Sub(flip); took > 50*time.Millisecond {
			t.Errorf("the handover took %v with requests of 2 ms", took)
		}
	})
}

// Without a watch of one object the lock is polled, however lively the other's watch is.
func TestBothLocksArePolledWhileOneIsNotWatched(t *testing.T) {
	for name, disturb := range map[string]func(*locktest.Client){
		"forbidden": func(c *locktest.Client) { c.Forbid(locktest.Watch) },
		"hanging":   func(c *locktest.Client) { c.FailNext(locktest.Watch, locktest.Fault{Hang: true}) },
	} {
		for half, which := range map[string]func(*locktest.PairLock) *locktest.Lock{
			"primary":   func(l *locktest.PairLock) *locktest.Lock { return l.Primary },
			"secondary": func(l *locktest.PairLock) *locktest.Lock { return l.Secondary },
		} {
			t.Run(name+" "+half, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pair := locktest.NewPair()
					a, _ := enterPair(t, pair, "a")
					pass(time.Second)
					lock := pair.Lock("b", "stable")
					disturb(which(lock).Client)
					b := prepare(t, pair.Primary, "b", func(c *le.LeaderElectionConfig) { c.Lock = lock.MultiLock })
					b.start(t)
					pass(time.Minute)
					if !a.isLive() || b.isLive() || b.GetLeader() != "a" {
						t.Fatalf("a live %v, b live %v, b sees %q", a.isLive(), b.isLive(), b.GetLeader())
					}
					if err := a.quit(); err != nil {
						t.Fatal(err)
					}
					pass(retry * 3)
					if !b.isLive() {
						t.Error("b has not polled its way to the released lock")
					}
				})
			})
		}
	}
}

// The two objects are watched by two connections, and what was written second may be seen
// first: the nomination in both is not the work of another process of one's name.
func TestHandoverBetweenBothLocksWhoseWatchesDiffer(t *testing.T) {
	for _, slow := range []string{"primary", "secondary"} {
		t.Run(slow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pair := locktest.NewPair()
				a, _ := enterPair(t, pair, "a")
				pass(time.Second)
				b, ways := enterPair(t, pair, "b")
				map[string]*locktest.Lock{"primary": ways.Primary, "secondary": ways.Secondary}[slow].SetWatchDelay(200 * time.Millisecond)
				pass(time.Minute)
				began := time.Now()
				o := admin.Operator{Lock: pair.Lock("operator", "").MultiLock, Requester: "alice"}
				if err := o.Transfer(t.Context(), "b", "stable", "", time.Minute); err != nil {
					t.Error(err)
				}
				took := time.Since(began)
				pass(time.Millisecond) // b is told at the same instant as the operator
				if !b.isLive() || a.isLive() || took > time.Second || strings.Contains(b.logged(), "another live process") {
					t.Errorf("a live %v, b live %v after %v\n%s", a.isLive(), b.isLive(), took, b.logged())
				}
			})
		})
	}
}
