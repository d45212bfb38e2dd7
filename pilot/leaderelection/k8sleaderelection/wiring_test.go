package k8sleaderelection_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// What the core decides is worth nothing if the loop around it reads another clock, leaves out
// a duration or asks a phase that was right a minute ago.

// holdsUp is an Observer that blocks the loop while it is on.
type holdsUp struct {
	on      atomic.Bool
	release chan struct{}
}

func (*holdsUp) Phase(_, _, _, _ string) {}

func (h *holdsUp) Call(_, _, _, _ string, _ time.Duration) {
	if h.on.Load() {
		<-h.release
	}
}

func TestWhoLeadsIsAskedOfTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		h := &holdsUp{release: make(chan struct{})}
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) { c.Observer = h })
		pass(time.Minute)
		if !a.IsLeader() || !a.Status().Leading {
			t.Fatal("a does not lead")
		}
		h.on.Store(true)
		pass(lease)
		if s := a.Status(); s.Phase != "leading" || a.IsLeader() || s.Leading || s.ValidFor != 0 {
			t.Errorf("its loop hangs since its cover ended: phase %s, IsLeader %v, status %+v", s.Phase, a.IsLeader(), s)
		}
		h.on.Store(false)
		close(h.release)
	})
}

func TestALeaseOfAnotherIsCountedByMonotonicTime(t *testing.T) {
	for name, jump := range map[string]time.Duration{"forth": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				var offset atomic.Int64
				clock := bubbleClock().WithWall(func() int64 { return time.Now().UnixNano() + offset.Load() })
				a := enter(t, store, "a")
				pass(time.Second)
				b := enter(t, store, "b", func(c *le.LeaderElectionConfig) { c.Clock = clock })
				pass(time.Minute)
				before := clock.Now().Mono
				a.cut(true)
				offset.Store(int64(jump))
				history := store.History()
				last := history[len(history)-1].At
				pass(lease + time.Second)
				if !b.isLive() || b.lastStart().Sub(last) < lease || b.lastStart().Sub(last) > lease+time.Second {
					t.Errorf("b leads %v, %v after the last renewal", b.isLive(), b.terms() > 0 && b.lastStart().Sub(last) >= lease)
				}
				if d := time.Duration(clock.Now().Mono - before); d != lease+time.Second {
					t.Errorf("%v have passed by the monotonic clock", d)
				}
				a.cut(false)
			})
		})
	}
}

// putPeer writes a peer's record that has just been acquired.
func putPeer(store *locktest.Store, holder, key string, transitions int) {
	stamp := metav1.NewTime(time.Now().Truncate(time.Second))
	store.Put(holder, k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: holder, HolderKey: key, LeaseDurationSeconds: int(lease / time.Second),
		AcquireTime: stamp, RenewTime: stamp, LeaderTransitions: transitions,
	})
}

func TestAPreemptedPeerHasItsGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, 20 * time.Second} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			putPeer(store, "istiod", "canary", 3)
			began := time.Now()
			b := prepare(t, store, "b", func(c *le.LeaderElectionConfig) { c.Ranked, c.PeerGrace = true, grace })
			setDefault("stable", b)
			b.start(t)
			pass(3 * lease)
			if took := b.lastStart().Sub(began); took < lease+grace || took > lease+grace+2*time.Second {
				t.Errorf("acts %v after it preempted a peer, which has a grace of %v beyond its lease of %v", took, grace, lease)
			}
		})
	}
}

// A peer keeps the annotation by which it was once written in. In a later term of its own it
// is no nominee, though its record looks like one's; the hold tells the term.
func TestANominationIsOfItsTerm(t *testing.T) {
	for name, c := range map[string]struct {
		hold string
		want time.Duration
	}{
		"the hold's term is over":  {`{"holder":"istiod","transitions":4,"seconds":1,"requester":"o","reason":"transfer"}`, lease},
		"the hold is of this term": {`{"holder":"istiod","transitions":6,"seconds":1,"requester":"o","reason":"transfer"}`, retry},
		"there is no hold":         {"", retry},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				b := prepare(t, store, "b")
				// All of it, before b reads: a nomination that b saw beside another holder is about that term.
				store.Annotate(k8sresourcelock.NominatedAnnotation, "istiod")
				store.Annotate(k8sresourcelock.HoldAnnotation, c.hold)
				putPeer(store, "istiod", "stable", 6)
				seen := time.Now()
				b.start(t)
				pass(3 * lease)
				// The taker of a nomination that was passed over need not settle.
				if took := b.lastStart().Sub(seen); took < c.want || took > c.want+time.Second {
					t.Errorf("b leads %v after it saw the record", took)
				}
			})
		})
	}
}

func TestHealthCountsFromTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		a.lock.SetLatency(0, 3*time.Second)
		a.drain = 40 * time.Second
		pass(time.Minute)
		for n := len(store.History()); len(store.History()) == n; {
			after(10 * time.Millisecond)
		}
		pass(3500 * time.Millisecond) // its reply is there
		a.cut(true)
		history := store.History()
		sent := history[len(history)-1].At
		pass(time.Until(sent.Add(lease + time.Second)))
		if err := a.Check(2 * time.Second); err != nil {
			t.Error(err)
		}
		pass(2 * time.Second)
		if a.Check(2*time.Second) == nil {
			t.Errorf("functions live on %v after the last write was sent, a lease and 2 s are tolerated", time.Since(sent))
		}
		for a.isLive() {
			pass(time.Second)
		}
		a.cut(false)
	})
}

// Whatever a shared watch ends with, and however often, it comes back: a release is
// followed at once again, without a poll.
func TestASharedWatchComesBackAfterErrors(t *testing.T) {
	for name, end := range map[string]apierrors.APIStatus{
		"internal error": apierrors.NewInternalError(locktest.ErrConnection),
		"too many":       apierrors.NewTooManyRequests("later", 1),
		"gone":           apierrors.NewResourceExpired("too old"),
		"no word":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := locktest.NewStore(locktest.Lease)
				store.ShareWatches()
				a, b := enterTwo(t, store)
				for range 3 {
					b.lock.FailNext(locktest.Watch, locktest.Fault{Lose: locktest.TheRequest}, locktest.Fault{Err: locktest.ErrUnavailable})
					b.lock.EndWatches(end)
					pass(20 * time.Second)
				}
				if b.lock.Watching() != 1 {
					t.Errorf("%d watches", b.lock.Watching())
				}
				before := b.lock.Requests()[locktest.Get]
				a.quit()
				synctest.Wait()
				if !b.isLive() || b.lastStart() != a.lastStop() || b.lock.Requests()[locktest.Get] != before {
					t.Errorf("b leads %v, after %d reads", b.isLive(), b.lock.Requests()[locktest.Get]-before)
				}
			})
		})
	}
}

// The request for a watch is never answered: the lock is polled, until the next try.
func TestAWatchThatIsNotAnsweredIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Second)
		b := prepare(t, store, "b")
		b.lock.FailNext(locktest.Watch, locktest.Fault{Hang: true}, locktest.Fault{Lose: locktest.TheReply, Hang: true})
		b.start(t)
		pass(time.Minute)
		if b.lock.Watching() != 1 {
			t.Errorf("%d watches", b.lock.Watching())
		}
		before := total(b.lock.Requests())
		pass(5 * time.Minute)
		if n := total(b.lock.Requests()) - before; n > 1 {
			t.Errorf("%d requests in five minutes", n)
		}
		if !a.isLive() {
			t.Error("a does not lead")
		}
	})
}
