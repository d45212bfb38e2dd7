package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/play"
)

// The timing of the plays.
const (
	playLease = 10 * time.Second
	playRenew = 6 * time.Second
	playRetry = 1500 * time.Millisecond
	playDrain = 2 * time.Second // the longest that functions take to return
)

// world is one random run of an election's processes over stores in memory.
type world struct {
	t       *testing.T
	bug     bug
	cast    []play.Make
	began   time.Time
	ctx     context.Context
	objects *locktest.Store            // the ConfigMap
	leases  map[string]*locktest.Store // by revision, when each has its own; else all the same
	backups []map[*locktest.Store]locktest.Backup

	processes []*process
	all       []*process
	serial    int
	orders    sync.WaitGroup
	untouched time.Time // no process starts before: it would not know what was there

	mu              sync.Mutex
	rand            *rand.Rand
	calm            bool
	defaultRevision string
	restored        time.Time
	judge           play.Judge
	ordered         int
	events          []locktest.Event
	violations      []string
	log             strings.Builder
}

func newWorld(t *testing.T, seed uint64, b bug) *world {
	w := &world{
		t: t, bug: b, cast: play.Cast(seed), began: time.Now(),
		rand: rand.New(rand.NewPCG(seed, 17)), defaultRevision: "stable",
		objects: locktest.NewStore(locktest.ConfigMap), leases: map[string]*locktest.Store{},
	}
	shared := w.objects.Beside(locktest.Lease)
	for _, revision := range play.Revisions {
		w.leases[revision] = shared
		if w.cast[0] == play.WithPredecessor {
			w.leases[revision] = w.objects.Beside(locktest.Lease)
		}
	}
	w.judge.Violated = w.violated
	return w
}

func (w *world) stores() []*locktest.Store {
	stores := []*locktest.Store{w.objects, w.leases["stable"]}
	if other := w.leases["canary"]; other != stores[1] {
		stores = append(stores, other)
	}
	return stores
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.log, "%v "+format+"\n", append([]any{time.Since(w.began)}, args...)...)
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violated(format, args...)
}

// violated is violate for those who hold mu.
func (w *world) violated(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// Intn is a number below n.
func (w *world) Intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *world) some(most time.Duration) time.Duration { return time.Duration(w.Intn(int(most))) }

func (w *world) wait(most time.Duration) { <-time.After(w.some(most)) }

// playKube is an API server that has nothing but the locks.
type playKube struct {
	kubernetes.Interface
	configMaps, leases *locktest.Client
	wrap               func(coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter
}

type playCore struct {
	corev1client.CoreV1Interface
	corev1client.ConfigMapsGetter
}

func (c playCore) ConfigMaps(ns string) corev1client.ConfigMapInterface {
	return c.ConfigMapsGetter.ConfigMaps(ns)
}

type playCoordination struct {
	coordinationv1client.CoordinationV1Interface
	coordinationv1client.LeasesGetter
}

func (c playCoordination) Leases(ns string) coordinationv1client.LeaseInterface {
	return c.LeasesGetter.Leases(ns)
}

func (k playKube) CoreV1() corev1client.CoreV1Interface {
	return playCore{ConfigMapsGetter: k.configMaps}
}

func (k playKube) CoordinationV1() coordinationv1client.CoordinationV1Interface {
	return playCoordination{LeasesGetter: k.getter()}
}

func (k playKube) getter() coordinationv1client.LeasesGetter {
	if k.wrap != nil {
		return k.wrap(k.leases)
	}
	return k.leases
}

// playClient is the kube.Client of a process; its work's writes go through the gate's transport.
type playClient struct {
	kube.Client
	kube playKube
}

func (c playClient) Kube() kubernetes.Interface { return c.kube }

// election makes a process's part, or the one that only gives an operator's orders.
func (w *world) election(name, revision string, m play.Make, k playKube, watcher *playWatcher, log *slog.Logger) *LeaderElection {
	cfg := Config{
		Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: name, Revision: revision,
		LeaseDuration: playLease, RenewDeadline: playRenew, RetryPeriod: playRetry,
		LockClient: k, DefaultWatcher: watcher, Logger: log,
	}
	switch m {
	case play.ConfigMapOnly:
		cfg.Lock = ConfigMapLock
	case play.BothLocks:
		cfg.Lock = MultiLock
	case play.LeaseOnly:
		cfg.Lock = LeaseLock
	case play.WithPredecessor:
		cfg.Lock, cfg.Predecessor = LeaseLock, &Predecessor{Name: locktest.Name, Lock: ConfigMapLock}
	case play.IstiodPeer, play.ClientGoPeer:
	}
	l, err := New(playClient{kube: k}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	// CLOCK_BOOTTIME is real inside a bubble, and what waits for it stops the bubble's time.
	l.clock = bubbleClock()
	l.gate = fence.NewGate(cfg.lockName(), l.clock)
	l.gates = &bothCovers{gate: l.gate}
	// Those of one process share their watches; here each has its own way to the store.
	l.shared = &k8sresourcelock.Shared{Client: k.getter(), ShareFrom: 1 + w.Intn(2)}
	return l
}

// playWatcher tells one process the default revision, which it may learn late.
type playWatcher struct {
	mu       sync.Mutex
	revision string
	handlers []func(string)
}

func (*playWatcher) Run(<-chan struct{}) {}
func (*playWatcher) HasSynced() bool     { return true }

func (d *playWatcher) GetDefault() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revision
}

func (d *playWatcher) set(revision string) {
	d.mu.Lock()
	d.revision = revision
	handlers := append([]func(string){}, d.handlers...)
	d.mu.Unlock()
	for _, h := range handlers {
		h(revision)
	}
}

// playElection plays one seed and returns what went wrong.
func playElection(t *testing.T, seed uint64, b bug) (result played) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, b)
		ctx, cancel := context.WithCancel(t.Context())
		w.ctx = ctx
		for range 3 {
			w.start(w.name(), w.revision(), w.kind())
		}
		for range 20 {
			w.wait(playLease)
			w.act()
		}
		w.settle()
		w.staysQuiet()
		for len(w.processes) > 0 {
			w.quit(w.processes[0])
		}
		cancel()
		w.orders.Wait()
		w.checkEvents()
		w.checkBudgets()
		w.mu.Lock()
		defer w.mu.Unlock()
		result = played{violations: w.violations, terms: w.judge.Terms, orders: w.ordered, log: w.log.String(), most: w.mostRequests()}
	})
	return result
}

type played struct {
	violations    []string
	terms, orders int
	most          int // requests of one process to one object in a span
	log           string
}

var _ k8sleaderelection.Gate = coverOf{}
