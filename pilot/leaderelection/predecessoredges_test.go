package leaderelection

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
	"incumbent.dev/incumbent/pkg/revisions"
)

// watcher says what the default revision is; "?": it has not synced.
type watcher string

func (watcher) Run(<-chan struct{})                 {}
func (w watcher) HasSynced() bool                   { return w != "?" }
func (w watcher) GetDefault() string                { return string(w) }
func (watcher) AddHandler(revisions.DefaultHandler) {}

// A predecessor is named in full, and is another lock than the election's own.
func TestWhichPredecessorsAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		p      Predecessor
		lock   LockType
		refuse string
	}{
		"another name":                     {Predecessor{Name: "old", Lock: ConfigMapLock}, ConfigMapLock, ""},
		"another namespace":                {Predecessor{Namespace: "elsewhere", Name: "new", Lock: LeaseLock}, LeaseLock, ""},
		"another kind":                     {Predecessor{Name: "new", Lock: ConfigMapLock}, LeaseLock, ""},
		"no name":                          {Predecessor{Lock: ConfigMapLock}, ConfigMapLock, `the Predecessor's Name ""`},
		"no name that an object can have":  {Predecessor{Name: "Old", Lock: LeaseLock}, ConfigMapLock, `the Predecessor's Name "Old"`},
		"two locks":                        {Predecessor{Name: "old", Lock: MultiLock}, ConfigMapLock, "is neither ConfigMapLock nor LeaseLock"},
		"its own":                          {Predecessor{Name: "new", Lock: LeaseLock}, LeaseLock, "is the election's own lock"},
		"its own, by its namespace":        {Predecessor{Namespace: "istio-system", Name: "new", Lock: LeaseLock}, LeaseLock, "is the election's own lock"},
		"one of its own two":               {Predecessor{Name: "new", Lock: ConfigMapLock}, MultiLock, "is the election's own lock"},
		"the other of its own two":         {Predecessor{Name: "new", Lock: LeaseLock}, MultiLock, "is the election's own lock"},
		"a name that is wrong, and a kind": {Predecessor{Name: "Old", Lock: MultiLock}, MultiLock, "is neither ConfigMapLock nor LeaseLock"},
	} {
		cfg := Config{Namespace: "istio-system", ElectionID: "new", Revision: "canary", Lock: x.lock, Predecessor: &x.p}
		err := cfg.validate()
		if x.refuse == "" && err != nil || x.refuse != "" && (err == nil || !strings.Contains(err.Error(), x.refuse)) {
			t.Errorf("%s: %v, want %q", name, err, x.refuse)
		}
	}
}

// What the keeper of an election takes over from its configuration.
func TestTheKeeperOfAnElection(t *testing.T) {
	var text strings.Builder
	l := electionFor(t, Config{
		Logger:        slog.New(slog.NewTextHandler(&text, nil)),
		Predecessor:   &Predecessor{Name: "old", Lock: LeaseLock},
		LeaseDuration: 40 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 5 * time.Second,
		PeerGrace: 3 * time.Second, DrainLimit: 4 * time.Second, Revision: "canary", DefaultWatcher: watcher("stable"),
	})
	k := l.keeper(l.client.Kube())
	if k.lease != 40*time.Second || k.deadline != 20*time.Second || k.retry != 5*time.Second || k.peerGrace != 3*time.Second ||
		k.drainLimit != 4*time.Second || k.callTimeout() != 7500*time.Millisecond || k.clock != l.clock {
		t.Errorf("%+v", k)
	}
	if where := k.lock.Describe(); where != "istio-system/old" || k.lock.Identity() != "a" {
		t.Errorf("it keeps %s as %s", where, k.lock.Identity())
	}
	if k.key() != "stable" || k.deflt() != (k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"}) {
		t.Errorf("key %q, default %+v", k.key(), k.deflt())
	}
	k.log.Info("said")
	if said := text.String(); !strings.Contains(said, "election=new") {
		t.Errorf("it logs %q", said)
	}
	k.stepDown() // which an election that does not run may be told
	nothing := func(context.Context) error { return nil }
	if c, err := k.elect(nothing, func(string) {}); err != nil || c == nil {
		t.Errorf("a candidate: %v, %v", c, err)
	}
	l.cfg.LeaseDuration = time.Second
	if _, err := k.elect(nothing, func(string) {}); err == nil {
		t.Error("a candidate with a lease that is shorter than its cover")
	}
	// A lock that is kept lets one act, by the gate's bound.
	if l.mayWork() {
		t.Error("it may work without the predecessor's lock")
	}
	k.bound(l.clock.Now().Plus(time.Minute))
	if left := l.bound.left(l.clock.Now()); !l.mayWork() || left <= 0 || left > time.Minute {
		t.Errorf("kept for %v: may work: %v", left, l.mayWork())
	}
	if elsewhere := electionFor(t, Config{Predecessor: &Predecessor{Namespace: "other", Name: "old"}}); elsewhere.keeper(elsewhere.client.Kube()).lock.Describe() != "other/old" {
		t.Error("it looks for the lock in its own namespace")
	}
	if !electionFor(t, Config{}).mayWork() {
		t.Error("without a predecessor it may not work")
	}
}

// The kept lock shows the highest rank: that of the default revision, or its own where none is
// known.
func TestWhichRankAKeptLockShows(t *testing.T) {
	for deflt, x := range map[watcher]struct {
		key   string
		knows k8sleaderelection.DefaultRevision
	}{
		"stable": {"stable", k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"}},
		"":       {"canary", k8sleaderelection.DefaultRevision{Synced: true}},
		"?":      {"canary", k8sleaderelection.DefaultRevision{}},
	} {
		l := electionFor(t, Config{Predecessor: &Predecessor{Name: "old"}, Revision: "canary", DefaultWatcher: deflt})
		if l.keptKey() != x.key || l.knownDefault() != x.knows {
			t.Errorf("default %q: key %q, known %+v", deflt, l.keptKey(), l.knownDefault())
		}
	}
	if l := electionFor(t, Config{Revision: "canary"}); l.keptKey() != "canary" || l.knownDefault() != (k8sleaderelection.DefaultRevision{}) {
		t.Errorf("without a watcher: key %q, known %+v", l.keptKey(), l.knownDefault())
	}
}

// The candidate for the predecessor's lock is one as earlier versions have them: it takes the
// lock from a lower rank, waits for who has it, and gives it up when it ends.
func TestTheCandidateForThePredecessorsLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		store.Put("istiod", istiodsLock("1").Record) // of the key "", which every default outranks
		var text strings.Builder
		l := electionFor(t, Config{Predecessor: &Predecessor{Name: "old"}, PeerGrace: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		l.clock = bubbleClock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, led := time.Now(), make(chan time.Duration, 1)
		seen := make(chan string, 9) // in no order
		c, err := l.predecessorCandidate(store.Lock("s", "stable").Locker, func(ctx context.Context) error {
			led <- time.Since(began)
			<-ctx.Done()
			return nil
		}, func(holder string) { seen <- holder })
		if err != nil {
			t.Fatal(err)
		}
		c.SetDefaultRevision(k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"})
		ended := make(chan error, 1)
		go func() { ended <- c.Campaign(ctx) }()
		passes(time.Second)
		if holder := store.Snapshot().Record.HolderIdentity; holder != "s" {
			t.Fatalf("the lock is held by %s", holder)
		}
		// An istiod is waited for for its lease and the grace.
		if after := <-led; after < 33*time.Second || after > 34*time.Second {
			t.Errorf("it leads after %v", after)
		}
		if a, b := <-seen, <-seen; len(seen) > 0 || a+b != "istiods" && a+b != "sistiod" {
			t.Errorf("it saw %q and %q", a, b)
		}
		began = time.Now()
		for store.Snapshot().Record.RenewTime.Time.Before(began) {
			if passes(time.Second); time.Since(began) > 2*DefaultRetryPeriod {
				t.Fatal("it does not renew")
			}
		}
		record := store.Snapshot().Record
		if record.LeaseDurationSeconds != int(DefaultLeaseDuration/time.Second) {
			t.Errorf("%+v", record)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if holder := store.Snapshot().Record.HolderIdentity; holder != "" {
			t.Errorf("at its end the lock is held by %s", holder)
		}
		if said := text.String(); !strings.Contains(said, `election="new (predecessor)"`) {
			t.Errorf("it logs %q", said)
		}
	})
}
