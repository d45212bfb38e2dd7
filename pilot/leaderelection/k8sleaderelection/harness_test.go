package k8sleaderelection_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease = 30 * time.Second
	renew = 15 * time.Second
	retry = 7500 * time.Millisecond
)

// candidate is an elector in a synctest bubble. Its run function records when it starts and stops.
type candidate struct {
	*le.LeaderElector
	lives.Recorder
	lives.Process
	lock  *locktest.Lock
	log   harness.Log
	drain atomic.Int64  // nanoseconds that the run function needs to stop
	ended chan struct{} // closed when the test ended: the run function stops without delay
	fail  chan error    // the run function returns an error from fail

	defaultRevision atomic.Pointer[le.DefaultRevision] // nil: unknown
}

// startCandidate starts a candidate that campaigns until the end of the test.
func startCandidate(t *testing.T, store *locktest.Store, identity string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	c := prepare(t, store, identity, change...)
	c.start(t)
	return c
}

// startTwo starts a leader a, and a follower b that has followed for a minute.
func startTwo(t *testing.T, store *locktest.Store, change ...func(*le.LeaderElectionConfig)) (leader, follower *candidate) {
	t.Helper()
	leader = startCandidate(t, store, "a", change...)
	advance(time.Second)
	follower = startCandidate(t, store, "b", change...)
	advance(time.Minute)
	return leader, follower
}

func prepare(t *testing.T, store *locktest.Store, identity string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	return prepareKey(t, store, identity, "stable", change...)
}

func prepareKey(t *testing.T, store *locktest.Store, identity, key string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	c := &candidate{lock: store.Lock(identity, key), ended: make(chan struct{}), fail: make(chan error, 1)}
	config := le.LeaderElectionConfig{
		Lock: c.lock.Lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
		ReleaseOnCancel: true, Name: "test", RunFunctions: []func(context.Context) error{c.run},
		Clock:           testClock(),
		Logger:          slog.New(slog.NewTextHandler(&c.log, nil)),
		DefaultRevision: c.knownDefault,
	}
	for _, f := range change {
		f(&config)
	}
	elector, err := le.NewLeaderElector(config)
	harness.Must(t, err)
	c.LeaderElector = elector
	return c
}

func (c *candidate) knownDefault() le.DefaultRevision {
	if d := c.defaultRevision.Load(); d != nil {
		return *d
	}
	return le.DefaultRevision{}
}

// setDefaultRevision changes the default revision and notifies the elector.
func (c *candidate) setDefaultRevision(d le.DefaultRevision) {
	c.defaultRevision.Store(&d)
	c.Refresh()
}

func (c *candidate) start(t *testing.T) {
	c.Start(t.Context(), c.Campaign)
	t.Cleanup(func() {
		synctest.Wait() // a candidate that ended before may have released the lock to this one
		close(c.ended)
		_ = c.Quit()
	})
}

// disconnect lets requests of the candidate hang and mutes its watches.
func (c *candidate) disconnect(is bool) {
	c.lock.MuteWatches(is)
	c.lock.On(nil)
	if is {
		c.lock.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Hang: true} })
	}
}

func (c *candidate) run(ctx context.Context) error {
	_, ended := c.Begin()
	defer ended()
	select {
	case <-ctx.Done():
		select {
		case <-time.After(time.Duration(c.drain.Load())):
		case <-c.ended:
		}
		return nil
	case err := <-c.fail:
		return err
	}
}

// testClock returns a clock with the boot time of the synctest bubble.
func testClock() *le.Clock {
	epoch := time.Now()
	return le.NewClock(func() int64 { return int64(time.Since(epoch)) })
}

func after(d time.Duration) { <-time.After(d) }

// advance waits d of the bubble's time, and then until all goroutines are idle.
func advance(d time.Duration) {
	after(d)
	synctest.Wait()
}

// onConfigMap runs f in a synctest bubble with a ConfigMap lock.
func onConfigMap(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	synctest.Test(t, func(t *testing.T) { f(t, locktest.NewStore(locktest.ConfigMap)) })
}

// onLeases runs f in a synctest bubble with a Lease that has its own watch, and with a shared watch.
func onLeases(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	for name, shared := range map[string]bool{"Lease": false, "shared watch": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := locktest.NewStore(locktest.Lease)
				if shared {
					store.ShareWatches()
				}
				f(t, store)
			})
		})
	}
}

// forEachLock runs f in a synctest bubble with each kind of lock and of watch.
func forEachLock(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	t.Run("ConfigMap", func(t *testing.T) { onConfigMap(t, f) })
	onLeases(t, f)
}

func total(requests map[string]int) (n int) {
	for _, k := range requests {
		n += k
	}
	return n
}

func stored(s *locktest.Store) k8sresourcelock.LeaderElectionRecord { return s.Snapshot().Record }

// putHolder writes another holder into the record, as a peer would.
func putHolder(store *locktest.Store, holder string) {
	r := stored(store)
	r.HolderIdentity = holder
	r.HolderKey = "canary"
	r.LeaseDurationSeconds = 30
	r.RenewTime = metav1.NewTime(r.RenewTime.Add(7 * time.Second))
	store.Put("", r)
}

// startRanked starts a candidate with a revision, which is ranked by the default revision.
func startRanked(t *testing.T, store *locktest.Store, identity, revision, defaultRevision string) *candidate {
	t.Helper()
	c := prepareKey(t, store, identity, revision, func(c *le.LeaderElectionConfig) { c.Ranked = true })
	c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: defaultRevision})
	c.start(t)
	return c
}

func setDefault(revision string, candidates ...*candidate) {
	for _, c := range candidates {
		c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: revision})
	}
}

// recorder is an Observer and an EventRecorder that stores its input.
type recorder struct {
	mu        sync.Mutex
	events    []string
	terms     []string
	calls     map[string]int
	durations []string
	changes   int // calls of StatusChanged
}

func (w *recorder) Phase(string, string, string, string) {}

func (w *recorder) Call(_, verb, _, result string, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[string]int{}
	}
	w.calls[verb+" "+result]++
}

func (w *recorder) Term(_ string, began bool, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terms = append(w.terms, map[bool]string{true: "+", false: "-"}[began]+reason)
}

func (w *recorder) StatusChanged(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
}

func (w *recorder) ObserveDuration(_ string, what le.Interval, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.durations = append(w.durations, fmt.Sprintf("%s %v", what, took))
}

func (w *recorder) Eventf(_ runtime.Object, kind, _, message string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, strings.TrimPrefix(kind+": ", "Normal: ")+fmt.Sprintf(message, args...))
}

// take returns and clears the stored input.
func (w *recorder) take() (events, terms, durations []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events = w.events
	terms = w.terms
	durations = w.durations
	w.events = nil
	w.terms = nil
	w.durations = nil
	return events, terms, durations
}

func (w *recorder) wants(t *testing.T, identity string, events, terms, durations []string) {
	t.Helper()
	gotEvents, gotTerms, gotDurations := w.take()
	slices.Sort(gotDurations) // a reply and its watch event arrive in either order
	for _, pair := range []struct {
		what      string
		got, want []string
	}{{"events", gotEvents, events}, {"terms", gotTerms, terms}, {"durations", gotDurations, durations}} {
		if !slices.Equal(pair.got, pair.want) {
			t.Errorf("%s: %s\n%q, want\n%q", identity, pair.what, pair.got, pair.want)
		}
	}
}

// startRecorded starts a ranked candidate of a revision, with a recorder. The default revision is stable.
func startRecorded(t *testing.T, store *locktest.Store, identity, revision string, w *recorder, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	lock := store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: identity, Key: revision, EventRecorder: w})
	c := prepareKey(t, store, identity, revision, append(change, func(c *le.LeaderElectionConfig) {
		c.Lock = lock.Lock
		c.Ranked = true
		c.Observer = w
	})...)
	c.lock = lock
	c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
	c.start(t)
	return c
}

type words = []string
