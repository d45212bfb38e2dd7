package k8sleaderelection_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// witness notes what an elector tells observers and recorders of Events.
type witness struct {
	mu     sync.Mutex
	events []string
	terms  []string
	calls  map[string]int
	lasted []string
}

func (w *witness) Phase(string, string, string, string) {}

func (w *witness) Call(_, verb, _, result string, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[string]int{}
	}
	w.calls[verb+" "+result]++
}

func (w *witness) Term(_ string, began bool, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terms = append(w.terms, map[bool]string{true: "+", false: "-"}[began]+reason)
}

func (*witness) StatusChanged(string) {}

func (w *witness) ObserveDuration(_ string, what le.Interval, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lasted = append(w.lasted, fmt.Sprintf("%s %v", what, took))
}

func (w *witness) Eventf(_ runtime.Object, kind, _, message string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, strings.TrimPrefix(kind+": ", "Normal: ")+fmt.Sprintf(message, args...))
}

// take returns what was told since the last time.
func (w *witness) take() (events, terms, lasted []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, terms, lasted = w.events, w.terms, w.lasted
	w.events, w.terms, w.lasted = nil, nil, nil
	return events, terms, lasted
}

func (w *witness) wants(t *testing.T, who string, events, terms, lasted []string) {
	t.Helper()
	gotEvents, gotTerms, gotLasted := w.take()
	slices.Sort(gotLasted) // a reply and its watch event come in either order
	for _, pair := range []struct {
		what      string
		got, want []string
	}{{"events", gotEvents, events}, {"terms", gotTerms, terms}, {"durations", gotLasted, lasted}} {
		if !slices.Equal(pair.got, pair.want) {
			t.Errorf("%s: %s\n%q, want\n%q", who, pair.what, pair.got, pair.want)
		}
	}
}

// observed starts a ranked candidate of a revision, with a witness.
func observed(t *testing.T, store *locktest.Store, identity, revision string, w *witness, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	lock := store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: identity, Key: revision, EventRecorder: w})
	c := prepareKey(t, store, identity, revision, append(change, func(c *le.LeaderElectionConfig) {
		c.Lock, c.Ranked, c.Observer = lock.Locker, true, w
	})...)
	c.lock = lock
	c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
	c.start(t)
	return c
}

type words = []string

// steal puts a record of another holder into the lock, as a peer would.
func steal(store *locktest.Store, holder string) {
	r := record(store)
	r.HolderIdentity, r.HolderKey, r.LeaseDurationSeconds = holder, "canary", 30
	r.RenewTime = metav1.NewTime(r.RenewTime.Add(7 * time.Second))
	store.Put("", r)
}

func TestWhatAHandoverTells(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var ofA, ofB witness
		a := observed(t, store, "a", "stable", &ofA)
		pass(time.Second)
		ofA.wants(t, "a", words{"a became leader (lock-absent)"}, words{"+lock-absent"}, words{"leaderless 0s"})
		b := observed(t, store, "b", "canary", &ofB)
		pass(time.Minute)
		a.drain = 3 * time.Second
		setDefault("canary", a, b)
		pass(10 * time.Second)
		ofA.wants(t, "a",
			words{"a accepted the request of b, drains", "a stopped leading (handing-over)", "a handed over to b"},
			words{"-handing-over"}, words{"drain 3s", "handover-given 3s", "leaderless 0s"})
		ofB.wants(t, "b", words{"b asked a to hand over (default-revision)", "b became leader (nominated)"},
			words{"+nominated"}, words{"handover 3s", "leaderless 0s"})
		ofA.mu.Lock()
		if ofA.calls["hand-over ok"] != 1 || ofA.calls["renew ok"] == 0 || ofA.calls["acquire ok"] != 1 {
			t.Errorf("calls %v", ofA.calls)
		}
		ofA.mu.Unlock()
	})
}

func TestWhatLossTells(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var ofA, ofB witness
		a := observed(t, store, "a", "stable", &ofA)
		pass(time.Second)
		b := observed(t, store, "b", "stable", &ofB)
		pass(time.Minute)
		ofA.take()
		a.cut(true)
		pass(lease)
		a.cut(false)
		pass(lease)
		events, terms, _ := ofA.take()
		if !slices.Equal(events, words{"Warning: a stopped leading (validity-ended)"}) || !slices.Equal(terms, words{"-validity-ended"}) {
			t.Errorf("a: %q, %q", events, terms)
		}
		ofB.wants(t, "b", words{"b became leader (lease-expired)"}, words{"+lease-expired"}, words{"leaderless 0s"})
		steal(store, "c")
		synctest.Wait()
		events, _, _ = ofB.take()
		if !slices.Equal(events, words{"Warning: b stopped leading (superseded)"}) {
			t.Errorf("b: %q", events)
		}
		_ = b
	})
}

func TestWhatAPeerAndADamagedRecordTell(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var ofA witness
		steal(store, "peer")
		a := observed(t, store, "a", "stable", &ofA)
		pass(2 * lease)
		events, terms, lasted := ofA.take()
		if !slices.Equal(events, words{"a preempted peer", "a became leader (outranks)"}) || !slices.Equal(terms, words{"+outranks"}) {
			t.Errorf("events %q, terms %q", events, terms)
		}
		// It holds the lock from the first moment, and acts a lease later.
		if !slices.Equal(lasted, words{"leaderless 30s"}) {
			t.Errorf("durations %q", lasted)
		}
		store.Corrupt()
		pass(2 * lease)
		events, _, lasted = ofA.take()
		if len(events) != 3 || !strings.HasPrefix(events[0], "Warning: a cannot read the record: ") ||
			events[1] != "Warning: a stopped leading (record-unreadable)" || events[2] != "a became leader (record-unreadable)" {
			t.Errorf("events %q", events)
		}
		if !slices.Equal(lasted, words{"drain 0s", "leaderless 30s"}) {
			t.Errorf("durations %q", lasted)
		}
		_ = a
	})
}

func TestATwinIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var ofA witness
		a := observed(t, store, "a", "stable", &ofA)
		pass(time.Second)
		ofA.take()
		steal(store, "a")
		synctest.Wait()
		events, _, _ := ofA.take()
		if !slices.Contains(events, "Warning: a is not alone: another live process uses this identity") {
			t.Errorf("events %q", events)
		}
		_ = a
	})
}

// A health check is about functions that outlive their lease, in a cycle and in a
// campaign; to follow is healthy.
func TestHealth(t *testing.T) {
	for _, cycle := range []bool{true, false} {
		t.Run(fmt.Sprintf("one cycle %v", cycle), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				const tolerance = 10 * time.Second
				dog, other := le.NewLeaderHealthzAdaptor(tolerance), le.NewLeaderHealthzAdaptor(tolerance)
				if dog.Check(nil) != nil || dog.Name() != "leaderElection" {
					t.Error("not healthy before there is an elector")
				}
				a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.WatchDog = dog })
				campaign := a.Campaign
				if cycle {
					campaign = func(ctx context.Context) error { a.Run(ctx); return nil }
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- campaign(ctx) }()
				defer func() {
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}()
				pass(time.Second)
				b := enter(t, store, "b", func(c *le.LeaderElectionConfig) { c.WatchDog = other })
				pass(time.Minute)
				if !a.isLive() || b.isLive() || dog.Check(nil) != nil || other.Check(nil) != nil {
					t.Fatal("a leader or a follower is not healthy")
				}
				a.drain = 2 * lease // it does not hear that it has to stop
				a.cut(true)
				pass(lease + tolerance - retry)
				if err := dog.Check(nil); err != nil {
					t.Errorf("too early: %v", err)
				}
				pass(2 * retry)
				later := le.NewLeaderHealthzAdaptor(tolerance)
				later.SetLeaderElection(a.LeaderElector)
				for _, check := range []*le.HealthzAdaptor{dog, later} {
					if err := check.Check(nil); err == nil || !strings.Contains(err.Error(), "test") {
						t.Errorf("error %v", err)
					}
				}
				if other.Check(nil) != nil {
					t.Error("the new leader is not healthy")
				}
				pass(2 * lease)
				if err := dog.Check(nil); err != nil {
					t.Errorf("after the functions have returned: %v", err)
				}
				a.cut(false)
			})
		})
	}
}
