package leaderelection

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

// watcher is a default watcher that has synced to a fixed revision, or never syncs ("?").
type watcher string

func (watcher) Run(<-chan struct{})                 {}
func (w watcher) HasSynced() bool                   { return w != "?" }
func (w watcher) GetDefault() string                { return string(w) }
func (watcher) AddHandler(revisions.DefaultHandler) {}

// electionFor returns an election whose client reaches no API server.
func electionFor(t *testing.T, cfg Config) *LeaderElection {
	t.Helper()
	cfg.Identity = "a"
	return newOn(t, unreachable(t), cfg)
}

// bubbleClock returns a clock that counts the time of a synctest bubble only. CLOCK_BOOTTIME is the real one in a bubble, and a
// wait for it stops the time of the bubble.
func bubbleClock() *k8sleaderelection.Clock {
	epoch := time.Now()
	return k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) })
}

func withPredecessor(c *Config) {
	c.Predecessor = &Predecessor{Name: locktest.Name, Lock: LockTypeConfigMap}
}

// oldReplica starts a replica of an earlier version, which elects by the old lock.
func (s *lockServer) oldReplica(t *testing.T, name string) *candidate {
	a := s.candidate(t, name, func(c *Config) { c.Lock = LockTypeConfigMap })
	a.AddRunContext(a.work)
	return a.starts(t)
}

func (s *lockServer) newReplica(t *testing.T, name string, change ...func(*Config)) *candidate {
	a := s.candidate(t, name, append([]func(*Config){withPredecessor}, change...)...)
	a.AddRunContext(a.work)
	return a.starts(t)
}

var passes = harness.Pass

func TestPredecessor_NoHolder(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, s *lockServer){
		"absent": func(*testing.T, *lockServer) {},
		"released": func(t *testing.T, s *lockServer) {
			old := s.oldReplica(t, "old")
			passes(time.Second)
			old.Stop(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *lockServer) {
				prepare(t, s)
				before := s.objects.Snapshot()
				a := s.newReplica(t, "new")
				passes(10 * time.Millisecond)
				if !a.Live() || a.Status().Waiting {
					t.Errorf("works %v, waiting %v; want a leader immediately", a.Live(), a.Status().Waiting)
				}
				passes(10 * playLease)
				after := s.objects.Snapshot()
				if before.Exists != after.Exists || before.ResourceVersion != after.ResourceVersion {
					t.Errorf("the old lock changed from %v to %v", before, after)
				}
			})
		})
	}
}

func TestPredecessor_HeldIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		old := s.oldReplica(t, "old")
		passes(time.Second)
		a := s.newReplica(t, "new")
		passes(10 * playLease)
		if !old.Live() || a.Live() || !a.Status().Waiting || a.admits(t) {
			t.Fatalf("old works %v, new works %v, waiting %v", old.Live(), a.Live(), a.Status().Waiting)
		}
		if n := a.log.Count("waiting for the predecessor's lock"); n != 1 {
			t.Errorf("logged %d times that it waits, want once", n)
		}
		stopped := s.newReplica(t, "stopped")
		passes(time.Second)
		if stopped.Stop(t); stopped.Status().Waiting || stopped.Live() {
			t.Error("waits after the end")
		}
		old.Stop(t)
		passes(time.Second)
		if !a.Live() || !a.admits(t) || a.Status().Waiting {
			t.Fatalf("works %v, admits %v, waiting %v after the release", a.Live(), a.admits(t), a.Status().Waiting)
		}
		if holder := s.objects.Snapshot().Record.HolderIdentity; holder != "" {
			t.Errorf("the old lock is held by %q, want it released", holder)
		}
		// A replica of an earlier version that starts again does not end the term: newer replicas are stopped first.
		again := s.oldReplica(t, "again")
		passes(10 * playLease)
		if !a.Live() || !again.Live() || len(a.Spans()) != 1 {
			t.Errorf("works %v in term %d, old works %v", a.Live(), len(a.Spans()), again.Live())
		}
	})
}

// The old replica sees neither the failure of its writes nor the deletion until its validity ends.
func TestPredecessor_UnreachableHolderExpires(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *lockServer) {
			old := s.oldReplica(t, "old")
			passes(time.Second)
			a := s.newReplica(t, "new")
			passes(time.Second)
			old.old.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: locktest.ErrUnavailable} })
			if deleted {
				s.objects.Delete()
			}
			passes(playLease - 2*playRetry)
			if a.Live() {
				t.Fatalf("deleted %v: works before the old lease has expired", deleted)
			}
			passes(2*playLease + playRetry)
			if !a.Live() || old.Live() || s.objects.Snapshot().Exists == deleted {
				t.Errorf("deleted %v: works %v, old works %v, old lock %+v", deleted, a.Live(), old.Live(), s.objects.Snapshot())
			}
			lives.Apart(t, old, a)
		})
	}
}

// A holder of a deleted lock may act until its lease has expired, also if it acquired the lock after another one with a shorter lease,
// and if the lock was deleted directly after the first read.
func TestPredecessor_DeletedHolderExpires(t *testing.T) {
	const lease = 3 * playLease
	for name, later := range map[string]bool{"later holder": true, "deleted after the first read": false} {
		inBubble(t, func(t *testing.T, s *lockServer) {
			watcher := newWatcher("stable")
			withWatcher := func(c *Config) { c.DefaultWatcher = watcher }
			long := s.candidate(t, "long", withWatcher, func(c *Config) {
				c.Lock = LockTypeConfigMap
				c.Revision = "canary"
				c.LeaseDuration = lease
				c.RenewDeadline = lease - playRetry
			})
			long.AddRunContext(long.work)
			vanish := func() { // the holder does not see it
				long.old.MuteWatches(true)
				long.old.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: locktest.ErrUnavailable} })
				s.objects.Delete()
			}
			var old *candidate
			if later {
				old = s.candidate(t, "old", withWatcher, func(c *Config) { c.Lock = LockTypeConfigMap })
				old.AddRunContext(old.work)
				old.starts(t)
				passes(time.Second)
			}
			long.starts(t)
			passes(time.Second)
			a := s.candidate(t, "new", withPredecessor, withWatcher)
			a.AddRunContext(a.work)
			var requests atomic.Int32
			a.old.On(func(apiserver.Request) apiserver.Fault {
				if requests.Add(1) == 2 && !later {
					vanish()
				}
				return apiserver.Fault{}
			})
			a.starts(t)
			passes(time.Second)
			if later {
				watcher.Set("canary")
				passes(time.Second)
				old.Stop(t)
				vanish()
			}
			if a.Live() || !long.Live() || s.objects.Snapshot().Exists {
				t.Fatalf("%s: new works %v, the last holder works %v, holders %s", name, a.Live(), long.Live(), s.holders())
			}
			passes(3 * lease)
			if !a.Live() || long.Live() {
				t.Errorf("%s: new works %v, the last holder works %v", name, a.Live(), long.Live())
			}
			lives.Apart(t, long, a)
		})
	}
}

func TestPredecessor_ReadFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "new", withPredecessor)
		a.AddRunContext(a.work)
		a.old.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: locktest.ErrUnavailable} })
		a.starts(t)
		passes(10 * playLease)
		if a.Live() || !a.Status().Waiting {
			t.Fatalf("works %v, waiting %v while the old lock cannot be read", a.Live(), a.Status().Waiting)
		}
		if n := a.log.Count("failed to read the predecessor's lock"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
		a.old.On(nil)
		passes(2 * playRetry)
		if !a.Live() {
			t.Error("does not work after the old lock could be read")
		}
	})
}

func TestPredecessor_Validate(t *testing.T) {
	for name, x := range map[string]struct {
		p      Predecessor
		lock   LockType
		refuse string
	}{
		"another name":      {Predecessor{Name: "old", Lock: LockTypeConfigMap}, LockTypeConfigMap, ""},
		"another namespace": {Predecessor{Namespace: "elsewhere", Name: "new", Lock: LockTypeLease}, LockTypeLease, ""},
		"another kind":      {Predecessor{Name: "new", Lock: LockTypeConfigMap}, LockTypeLease, ""},
		"no name":           {Predecessor{Lock: LockTypeConfigMap}, LockTypeConfigMap, `the Predecessor's Name ""`},
		"invalid name":      {Predecessor{Name: "Old", Lock: LockTypeLease}, LockTypeConfigMap, `the Predecessor's Name "Old"`},
		"no such lock":      {Predecessor{Name: "old", Lock: "x"}, LockTypeConfigMap, "is neither LockTypeConfigMap nor LockTypeLease"},
		"own lock":          {Predecessor{Name: "new", Lock: LockTypeLease}, LockTypeLease, "is the election's own lock"},
		"own namespace":     {Predecessor{Namespace: "istio-system", Name: "new", Lock: LockTypeLease}, LockTypeLease, "is the election's own lock"},
	} {
		cfg := Config{Namespace: "istio-system", ElectionID: "new", Revision: "canary", Lock: x.lock, Predecessor: &x.p}
		err := cfg.validate()
		if x.refuse == "" && err != nil || x.refuse != "" && (err == nil || !strings.Contains(err.Error(), x.refuse)) {
			t.Errorf("%s: %v, want %q", name, err, x.refuse)
		}
	}
}
