package leaderelection

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// campaigner is a candidate for the predecessor's lock that does what a test says.
type campaigner struct {
	campaign func(ctx context.Context) error
	status   k8sleaderelection.Status
	ranked   func()
}

func (c *campaigner) Campaign(ctx context.Context) error { return c.campaign(ctx) }
func (c *campaigner) Status() k8sleaderelection.Status   { return c.status }
func (c *campaigner) SetDefaultRevision(k8sleaderelection.DefaultRevision) {
	if c.ranked != nil {
		c.ranked()
	}
}

// trial is a keeper whose candidate is c, and what the keeper has given to it.
type trial struct {
	*keeper
	c       *campaigner
	lead    func(context.Context) error
	seen    func(string)
	elected []time.Duration // when, from the beginning on
}

func trialOf(lock *locktest.Lock) *trial {
	x := &trial{keeper: keeperOf(lock), c: &campaigner{campaign: func(context.Context) error { return nil }}}
	began := time.Now()
	x.elect = func(lead func(context.Context) error, seen func(string)) (candidate, error) {
		x.lead, x.seen = lead, seen
		x.elected = append(x.elected, time.Since(began))
		return x.c, nil
	}
	return x
}

// What the candidate does with a lock that it has won: it makes it one that is kept, and ends.
func TestWhatIsDoneWithTheLockThatWasWon(t *testing.T) {
	const eighth = oldRetry / 8
	for name, x := range map[string]struct {
		holder string
		faults func(*locktest.Client)
		takes  time.Duration
		kept   bool
	}{
		"its own":       {"s", func(*locktest.Client) {}, 0, true},
		"taken from it": {"istiod", func(*locktest.Client) {}, 0, false},
		"a read fails":  {"s", func(c *locktest.Client) { c.FailNext(locktest.Get, locktest.Fault{Lose: locktest.TheRequest}) }, eighth, true},
		"two writes fail": {"s", func(c *locktest.Client) {
			lost := locktest.Fault{Lose: locktest.TheRequest}
			c.FailNext(locktest.Update, lost, lost)
		}, 3 * eighth, true},
		"a read fails, taken by then": {"istiod", func(c *locktest.Client) { c.FailNext(locktest.Get, locktest.Fault{Lose: locktest.TheRequest}) }, eighth, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				record := istiodsLock("1").Record
				record.HolderIdentity = x.holder
				store.Put(x.holder, record)
				lock := store.Lock("s", "canary")
				k := trialOf(lock)
				k.c.campaign = func(ctx context.Context) error {
					x.faults(lock.Client)
					err := k.lead(ctx)
					if (ctx.Err() != nil) != x.kept {
						t.Errorf("the candidate is told to end: %v", ctx.Err() != nil)
					}
					return err
				}
				began := time.Now()
				held, ok := k.win(t.Context(), "", true)
				if ok != x.kept || store.Snapshot().KeptForSuccessors() != x.kept || (held.cover == k8sleaderelection.Cover{}) == x.kept {
					t.Errorf("won: %v, %+v; the lock: %+v", ok, held, store.Snapshot().Record)
				}
				if n := lock.Client.Requests()[locktest.Create]; n != 0 {
					t.Errorf("%d times it made a lock that is there", n)
				}
				if took := time.Since(began); took < x.takes || took > x.takes+time.Second {
					t.Errorf("it takes %v, want %v", took, x.takes)
				}
			})
		})
	}
}

// Pauses of a candidate that cannot keep what it has won grow up to a RetryPeriod.
func TestALockThatWasWonIsKeptAtLast(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		record := istiodsLock("1").Record
		record.HolderIdentity = "s"
		store.Put("s", record)
		lock := store.Lock("s", "canary")
		k := trialOf(lock)
		var tries []time.Time
		lock.Client.SetFault(func(v locktest.Verb) locktest.Fault {
			if v == locktest.Get {
				tries = append(tries, time.Now())
			}
			return locktest.Fault{Lose: locktest.TheRequest}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 8*oldRetry)
		defer cancel()
		k.c.campaign = func(ctx context.Context) error { return k.lead(ctx) }
		if _, ok := k.win(ctx, "", true); ok {
			t.Error("it kept the lock")
		}
		longest := time.Duration(0)
		for i := range len(tries) - 1 {
			longest = max(longest, tries[i+1].Sub(tries[i]))
		}
		if longest < oldRetry || longest > oldRetry+time.Second {
			t.Errorf("the longest pause of %d tries is %v", len(tries), longest)
		}
	})
}

// The candidate gives way when somebody else has made the lock one that is kept: by its
// holder's name, or where that tells nothing, by looking.
func TestWhenACandidateGivesWay(t *testing.T) {
	ends := func(ctx context.Context) error { <-ctx.Done(); return errors.New("ended") }
	bubble(t, func(t *testing.T, store *locktest.Store) {
		for holder, gives := range map[string]bool{k8sresourcelock.Successors: true, "istiod": false, "": false} {
			for _, giveWay := range []bool{true, false} {
				k := trialOf(store.Lock("s", "canary"))
				ctx, cancel := context.WithTimeout(t.Context(), 3*oldRetry)
				k.c.campaign = func(ctx context.Context) error { k.seen(holder); return ends(ctx) }
				began := time.Now()
				_, ok := k.win(ctx, "", giveWay)
				cancel()
				if gave := time.Since(began) < oldRetry; ok || gave != (gives && giveWay) {
					t.Errorf("%q was seen, give way %v: won %v, after %v", holder, giveWay, ok, time.Since(began))
				}
			}
		}
		// By looking, once a RetryPeriod.
		for _, giveWay := range []bool{true, false} {
			lock := store.Lock("s", "canary")
			k := trialOf(lock)
			k.c.campaign = ends
			ctx, cancel := context.WithTimeout(t.Context(), 3*oldRetry+time.Second)
			store.Put("istiod", istiodsLock("1").Record)
			go func() {
				<-time.After(oldRetry + time.Second)
				other := keeperOf(store.Lock("other", "canary"))
				if base, err := other.read(ctx); err == nil {
					_, _ = other.write(ctx, base)
				}
			}()
			began := time.Now()
			k.win(ctx, "", giveWay)
			cancel()
			if took := time.Since(began); (took < 3*oldRetry) == giveWay {
				t.Errorf("give way %v: it looked after %v", giveWay, took)
			}
		}
	})
}

// A holder counts as seen with the transitions that belong to it.
func TestWhomACandidateRemembers(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		for _, x := range []struct {
			seen, newest string
			want         bool
		}{{"istiod", "istiod", true}, {"istiod", "another", false}, {"s", "s", false}} {
			k := trialOf(store.Lock("s", "canary"))
			k.c.status = k8sleaderelection.Status{Holder: x.newest, Transitions: 7}
			k.c.campaign = func(context.Context) error { k.seen(x.seen); return nil }
			k.win(t.Context(), "", true)
			if k.former.known != x.want || x.want && k.former.transitions != 7 {
				t.Errorf("%s was seen, the newest is %s: remembered %v, term %d", x.seen, x.newest, k.former.known, k.former.transitions)
			}
		}
	})
}

// The candidate is told the default revision at once, and again each RetryPeriod; and a win
// has ended when that has.
func TestACandidateIsToldTheDefaultRevision(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		k := trialOf(store.Lock("s", "canary"))
		var mu sync.Mutex
		var told []time.Duration
		began := time.Now()
		k.c.ranked = func() {
			mu.Lock()
			told = append(told, time.Since(began))
			mu.Unlock()
			<-time.After(time.Second)
		}
		k.c.campaign = func(context.Context) error { <-time.After(2*oldRetry + time.Second/2); return nil }
		k.win(t.Context(), "", true)
		if len(told) != 3 || told[0] != 0 || told[1] != oldRetry || told[2] != 2*oldRetry || time.Since(began) != 2*oldRetry+time.Second {
			t.Errorf("told after %v, ended after %v", told, time.Since(began))
		}
	})
}

// How often a keeper tries for the lock: with growing pauses, and from the start again after
// somebody else has had it for a while.
func TestHowOftenAKeeperTries(t *testing.T) {
	const eighth = oldRetry / 8
	for campaign, pauses := range map[time.Duration][]time.Duration{
		time.Second:   {1, 2, 4, 8, 16, 16, 16},
		oldRetry:      {1, 2, 4, 8, 16, 16},
		oldRetry + 1:  {1, 1, 1, 1, 1},
		2 * time.Hour: {1, 1},
	} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			store.Put("istiod", istiodsLock("1").Record)
			k := trialOf(store.Lock("s", "canary"))
			ctx, cancel := context.WithCancel(t.Context())
			k.c.campaign = func(context.Context) error {
				if len(k.elected) > len(pauses) {
					cancel()
				}
				<-time.After(campaign)
				return nil
			}
			if _, ok := k.acquire(ctx); ok {
				t.Fatal("it has the lock")
			}
			for i, pause := range pauses {
				if got := k.elected[i+1] - k.elected[i] - campaign; got != pause*eighth {
					t.Errorf("campaigns of %v, pause %d: %v, want %v", campaign, i+1, got, pause*eighth)
				}
			}
		})
	}
}

// A lock that went back to an earlier state is kept, and nobody works, until the holder that
// was seen in it has ended.
func TestAKeeperWaitsForWhoWasSeen(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		other := keeperOf(store.Lock("other", "canary"))
		store.Put("istiod", istiodsLock("1").Record)
		base, err := other.read(t.Context())
		if err == nil {
			_, err = other.write(t.Context(), base) // the fifth term
		}
		if err != nil {
			t.Fatal(err)
		}
		lock := store.Lock("s", "canary")
		k := trialOf(lock)
		k.lease, k.peerGrace = 15*time.Second, 3*time.Second
		k.former.saw("istiod", "", 5)
		began, before := time.Now(), lock.Client.Requests()[locktest.Update]
		held, ok := k.acquire(t.Context())
		if !ok || time.Since(began) != 18*time.Second || held.sent.Mono != k.clock.Now().Mono {
			t.Errorf("kept %v, after %v", ok, time.Since(began))
		}
		// At once, after each RetryPeriod, and at the end.
		if n := lock.Client.Requests()[locktest.Update] - before; n != 4 {
			t.Errorf("%d writes meanwhile", n)
		}
	})
}

// A lock that was won while a holder of another object of it may still act stays one that nobody keeps until
// then. Who the candidate has seen and outlasted is not waited for; its own name and an empty one are nobody.
func TestALockThatWasWonWaitsForWhoWasSeen(t *testing.T) {
	for name, x := range map[string]struct {
		sees  []string
		waits bool
	}{
		"nobody":           {nil, true},
		"itself":           {[]string{"s"}, true},
		"a free lock":      {[]string{""}, true},
		"another":          {[]string{"istiod"}, false},
		"itself, then one": {[]string{"s", "", "istiod", "s"}, false},
	} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			record := istiodsLock("1").Record
			record.HolderIdentity = "s"
			store.Put("s", record)
			k := trialOf(store.Lock("s", "canary"))
			k.lease, k.peerGrace = 15*time.Second, 3*time.Second
			k.former.saw("before", "deleted", 3)
			began := time.Now()
			var reads []time.Duration
			k.keeper.lock = toldOfReads{k.keeper.lock, func() { reads = append(reads, time.Since(began)) }}
			k.c.campaign = func(ctx context.Context) error {
				for _, holder := range x.sees {
					k.c.status = k8sleaderelection.Status{Holder: holder, Transitions: 4}
					k.seen(holder)
				}
				return k.lead(ctx)
			}
			want := []time.Duration{0}
			if x.waits {
				want = []time.Duration{0, oldRetry, 2 * oldRetry, 18 * time.Second}
			}
			if _, ok := k.win(t.Context(), "", true); !ok || !slices.Equal(reads, want) || time.Since(began) != want[len(want)-1] {
				t.Errorf("%s: won %v after %v, looked after %v", name, ok, time.Since(began), reads)
			}
		})
	}
}

type toldOfReads struct {
	watchedLock
	told func()
}

func (l toldOfReads) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	l.told()
	return l.watchedLock.Read(ctx)
}

// A cover that ends with the answer to the write is none.
func TestAKeepersCoverThatIsOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var now int64
		k := keeperOf(store.Lock("s", "canary"))
		k.clock = k8sleaderelection.NewClock(func() int64 { return now })
		writes := 0
		k.lock = slowLock{k.lock, func() {
			if writes++; writes == 1 {
				now += int64(oldRenew)
			}
		}}
		store.Put("istiod", istiodsLock("1").Record)
		other := keeperOf(store.Lock("other", "canary"))
		if base, err := other.read(t.Context()); err == nil {
			_, _ = other.write(t.Context(), base)
		}
		if held, ok := k.acquire(t.Context()); !ok || writes != 2 || held.cover.Left(k.clock.Now()) <= 0 {
			t.Errorf("kept %v after %d writes", ok, writes)
		}
	})
}

// slowLock does something while a write is under way.
type slowLock struct {
	watchedLock
	meanwhile func()
}

func (l slowLock) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	defer l.meanwhile()
	return l.watchedLock.Write(ctx, base, r, notes)
}

// An attempt that fails is none: no candidate comes of a read that failed, nor of one that
// cannot be made.
func TestAttemptsThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		lost := locktest.Fault{Lose: locktest.TheRequest}
		store.Put("istiod", istiodsLock("1").Record)
		lock := store.Lock("s", "canary")
		k := trialOf(lock)
		lock.Client.FailNext(locktest.Get, lost)
		if _, ok := k.take(t.Context()); ok || len(k.elected) != 0 {
			t.Errorf("a read that failed: kept %v, candidates %d", ok, len(k.elected))
		}
		if _, ok := k.take(t.Context()); ok || len(k.elected) != 1 || !k.former.known || k.former.transitions != 4 {
			t.Errorf("somebody has it: kept %v, candidates %d, remembered %+v", ok, len(k.elected), k.former.transitions)
		}
		base, err := k.read(t.Context())
		if err == nil {
			_, err = k.write(t.Context(), base)
		}
		if err != nil {
			t.Fatal(err)
		}
		lock.Client.FailNext(locktest.Update, lost)
		if _, ok := k.take(t.Context()); ok {
			t.Error("a write that failed: kept")
		}
		// What somebody else has made meanwhile is a conflict, and is called so.
		if _, err := k.write(t.Context(), k8sresourcelock.Snapshot{}); !k8sresourcelock.IsConflict(err) {
			t.Errorf("a lock that is there already: %v", err)
		}
		k.elect = func(func(context.Context) error, func(string)) (candidate, error) {
			return nil, errors.New("no candidate")
		}
		if _, ok := k.win(t.Context(), "", true); ok {
			t.Error("no candidate: won")
		}
	})
}
