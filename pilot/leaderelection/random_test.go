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
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// The timing of the random runs.
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
	ctx     context.Context
	mix     mix
	began   time.Time
	objects *locktest.Store // the ConfigMap
	leases  *locktest.Store
	backups []map[*locktest.Store]locktest.Backup

	processes []*process     // that live
	orders    sync.WaitGroup // pending operator commands
	ordered   int
	serial    int
	untouched time.Time // the earliest time for a new process, see awaitUntouched

	mu              sync.Mutex // guards the fields below
	rand            *rand.Rand
	all             []*process
	calm            bool // no more faults
	defaultRevision string
	restored        time.Time // the time of the last restore
	events          []locktest.Event
	token           uint64 // of the newest term since then
	terms           int
	violations      []string
	log             strings.Builder
}

func newWorld(t *testing.T, seed uint64, b bug) *world {
	objects := locktest.NewStore(locktest.ConfigMap)
	return &world{
		t: t, bug: b, mix: mixes[seed%uint64(len(mixes))], began: time.Now(),
		objects: objects, leases: objects.InSameEtcd(locktest.Lease),
		rand: rand.New(rand.NewPCG(seed, 17)), defaultRevision: playRevisions[0],
	}
}

func (w *world) stores() []*locktest.Store { return []*locktest.Store{w.objects, w.leases} }

// playKube is an API server with only the locks.
type playKube struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	coordinationv1client.CoordinationV1Interface
	configMaps corev1client.ConfigMapsGetter
	leases     coordinationv1client.LeasesGetter
}

func (k playKube) CoreV1() corev1client.CoreV1Interface { return k }

func (k playKube) CoordinationV1() coordinationv1client.CoordinationV1Interface { return k }

func (k playKube) ConfigMaps(ns string) corev1client.ConfigMapInterface {
	return k.configMaps.ConfigMaps(ns)
}

func (k playKube) Leases(ns string) coordinationv1client.LeaseInterface { return k.leases.Leases(ns) }

func (playKube) RESTClient() rest.Interface { return nil }

// playClient is the kube.Client of a process. The writes of its run functions go through the transport of the gate.
type playClient struct {
	kube.Client
	kube playKube
}

func (c playClient) Kube() kubernetes.Interface { return c.kube }

// election returns the election of a process or of an operator.
func (w *world) election(name, revision string, m electorKind, k playKube, watcher *testWatcher, log *slog.Logger) *LeaderElection {
	cfg := Config{
		Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: name, Revision: revision,
		LeaseDuration: playLease, RenewDeadline: playRenew, RetryPeriod: playRetry,
		LockClient: k, DefaultWatcher: watcher, Logger: log, Clock: bubbleClock(),
	}
	switch m {
	case configMapOnly:
		cfg.Lock = LockTypeConfigMap
	case bothLocks, leaseOnly:
		cfg.Lock = LockTypeLease
	case clientGoPeer:
	}
	l, err := New(playClient{kube: k}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	// Elections of one process share their watches. Here each election has its own client for the store.
	l.shared = &k8sresourcelock.Shared{Client: k.leases, MinSharedWatches: 1 + w.intn(2)}
	return l
}

// playElection runs one seed and returns an error that describes the violation, if any.
func playElection(t *testing.T, seed uint64, b bug) (result played) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, b)
		ctx, cancel := context.WithCancel(t.Context())
		w.ctx = ctx
		for range 3 {
			w.start(w.newName(), w.anyRevision(), w.anyKind())
		}
		for range 20 {
			w.wait(playLease)
			w.act()
		}
		w.endFaults()
		w.staysQuiet()
		for len(w.processes) > 0 {
			w.quit(w.processes[0])
		}
		cancel()
		w.orders.Wait()
		w.checkEvents()
		most := w.checkBudgets()
		w.mu.Lock()
		defer w.mu.Unlock()
		result = played{violations: w.violations, terms: w.terms, orders: w.ordered, log: w.log.String(), most: most}
	})
	return result
}

type played struct {
	violations    []string
	terms, orders int
	most          int // requests of one process to one object in a span
	log           string
}

// playedSeeds is the number of runs of an ordinary test.
const playedSeeds = 120

// The promises hold under random faults. A seed determines the faults, but not the order of goroutines.
func TestRandomElections(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's candidates would bury a failure
	defer klog.ClearLogger()
	first, n := numberFrom(t, "PLAY_FIRST", 0), numberFrom(t, "SIM_SEEDS", playedSeeds)
	var failed []string
	var terms, orders, most int
	for seed := first; seed < first+n && len(failed) < 5; seed++ {
		p := playElection(t, uint64(seed), bug{})
		terms, orders, most = terms+p.terms, orders+p.orders, max(most, p.most)
		if len(p.violations) > 0 {
			failed = append(failed, fmt.Sprintf("seed %d: %s", seed, strings.Join(p.violations, "; ")))
			t.Logf("%s:\n%s", failed[len(failed)-1], p.log) // the seed alone does not bring it back
		}
	}
	t.Logf("%d seeds, %d terms, %d orders, at most %d requests about an object in %v", n, terms, orders, most, budgetSpan)
	for _, violations := range failed {
		t.Error(violations) // at the end of the log
	}
}
