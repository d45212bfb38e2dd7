package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
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
	backups []map[*locktest.Store]apiserver.Backup

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
	case bothLocks:
		cfg.Predecessor = &Predecessor{Name: locktest.Name, Lock: LockTypeConfigMap, Hold: true}
	case leaseOnly:
		cfg.Lock = LockTypeLease
	case clientGoPeer:
	}
	l, err := New(playClient{kube: k}, cfg)
	harness.Must(w.t, err)
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
	if withRaceDetector() {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	first, n := numberFrom(t, "SIM_FIRST", 0), numberFrom(t, "SIM_SEEDS", playedSeeds)
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
	t.Logf("seeds %d to %d: %d terms, %d orders, at most %d requests about an object in %v", first, first+n-1, terms, orders, most, budgetSpan)
	for _, violations := range failed {
		t.Error(violations) // at the end of the log
	}
}

// withRaceDetector reports whether the test was built with -race. The race detector of Go 1.26 crashes if two threads run timers
// of one bubble (golang/go#78156).
func withRaceDetector() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// process is one process of a random run: a candidate of this project or a peer.
type process struct {
	w              *world
	name, revision string
	kind           electorKind
	l              *LeaderElection // nil: a peer
	watcher        *testWatcher
	clients        []*apiserver.Client // to the ConfigMap and to the Lease
	writer         string              // whose the clients' writes are: processes that come again share their name
	writes         http.RoundTripper
	poor           bool // it needs both objects and must not write the Lease
	cancel         context.CancelFunc
	done           chan struct{}
	alongside      sync.WaitGroup // writers that its functions leave behind

	// w.mu guards the fields below.
	dead    bool // killed; its goroutines no longer count
	running bool // its run functions are active
	runs    []span
	unfit   error           // result of its fitness check
	lines   []time.Duration // times of its log lines

	cut    bool
	refuse map[string]error
	sent   [2][]time.Duration
	asked  time.Duration // when it sent its last request
	verbs  [2]map[string]int
}

// span is one run of the run functions. to is zero while they run.
type span struct{ from, to time.Time }

// start runs a process of that name.
func (w *world) start(name, revision string, m electorKind) {
	p := &process{w: w, name: name, revision: revision, kind: m, done: make(chan struct{}), refuse: map[string]error{}}
	p.verbs = [2]map[string]int{{}, {}}
	p.poor = m == bothLocks && w.intn(6) == 0
	p.writer = fmt.Sprintf("%s, process %d", name, len(w.all))
	p.clients = []*apiserver.Client{w.objects.Client(p.writer), w.leases.Client(p.writer)}
	for i, c := range p.clients {
		c.On(func(r apiserver.Request) apiserver.Fault { return p.fault(i, r.Verb) })
		c.MuteWatches(w.bug.quiet)
		if w.intn(3) == 0 {
			c.SetWatchDelay(w.within(300 * time.Millisecond))
		}
	}
	p.watcher = newWatcher(w.defaultRevision)
	ctx, cancel := context.WithCancel(w.ctx)
	p.cancel = cancel
	if w.bug.wavers > 0 {
		p.alongside.Go(func() { p.waver(ctx) })
	}
	run := p.elector()
	go func() {
		defer close(p.done)
		run(ctx)
		p.alongside.Wait()
	}()
	w.logf("start %s (%s, %v, poor: %v)", name, revision, m, p.poor)
	w.processes = append(w.processes, p)
	w.locked(func() { w.all = append(w.all, p) })
}

// elector returns the function that runs the elector of the process.
func (p *process) elector() (run func(context.Context)) {
	w := p.w
	if p.kind == clientGoPeer {
		e, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name},
				Client:    p.clients[1], LockConfig: resourcelock.ResourceLockConfig{Identity: p.name},
			},
			LeaseDuration: playLease, RenewDeadline: playRenew, RetryPeriod: playRetry, ReleaseOnCancel: true,
			Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: p.peerWork, OnStoppedLeading: func() {}},
		})
		harness.Must(w.t, err)
		return func(ctx context.Context) {
			for ctx.Err() == nil {
				e.Run(ctx)
			}
		}
	}
	k := playKube{configMaps: p.clients[0], leases: p.clients[1]}
	if w.bug.write != nil {
		k.leases = faultyLeases{p.clients[1].Leases(locktest.Namespace), w.bug.write}
	}
	p.l = w.election(p.name, p.revision, p.kind, k, p.watcher, slog.New(slog.NewTextHandler(&playLines{p}, nil)))
	p.l.AddFitnessCheck(p.fit).AddRunContext(p.work)
	p.writes = p.l.Gate().Transport(playServer{p})
	if w.bug.ungated {
		p.writes = playServer{p}
	}
	return func(ctx context.Context) { _ = p.l.RunContext(ctx) } // errors of run functions
}

// hears sets the default revision of the watcher.
func (p *process) hears(revision string) {
	if !p.w.bug.unwatched {
		p.watcher.Set(revision)
	}
}

// waver changes the default revision of the watcher repeatedly.
func (p *process) waver(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-time.After(p.w.bug.wavers):
			p.watcher.Set(playRevisions[i%2])
		case <-ctx.Done():
		}
	}
}

// peerWork is the run function of a peer.
func (p *process) peerWork(ctx context.Context) {
	p.ran(true)
	<-ctx.Done()
	p.ran(false)
}

var errPlay = errors.New("run function failed")

// work is the run function. It writes through the gate, and starts a writer that continues after it has returned. It
// returns late, fails, or calls runtime.Goexit.
func (p *process) work(ctx context.Context) error {
	w := p.w
	w.checkStart(p, ctx)
	p.ran(true)
	drain, fails := w.within(playDrain), w.within(20*playLease)
	straggling, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.alongside.Go(func() { p.write(straggling) })
	p.alongside.Go(func() {
		defer stop()
		<-ctx.Done()
		<-time.After(playLease / 2)
	})
	if w.bug.leavesWork {
		p.alongside.Go(func() {
			<-ctx.Done()
			<-time.After(drain)
			p.ran(false)
		})
		<-ctx.Done()
		return nil
	}
	failed := time.NewTimer(fails)
	defer failed.Stop()
	select {
	case <-ctx.Done():
		<-time.After(drain)
		p.ran(false)
		return nil
	case <-failed.C:
	}
	if w.isCalm() {
		<-ctx.Done()
		p.ran(false)
		return nil
	}
	p.ran(false)
	if w.intn(2) == 0 {
		runtime.Goexit()
	}
	return errPlay
}

// write writes repeatedly through the gate.
func (p *process) write(ctx context.Context) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://play.invalid/api/v1/namespaces/default/configmaps", http.NoBody)
		if err != nil {
			p.w.t.Error(err)
			return
		}
		if resp, err := p.writes.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(p.w.within(time.Second)):
		}
	}
}

// playServer receives the writes of the run functions.
type playServer struct{ p *process }

func (s playServer) RoundTrip(req *http.Request) (*http.Response, error) {
	w := s.p.w
	w.locked(func() {
		if !s.p.dead {
			w.checkAlone(s.p, "writes")
		}
	})
	select { // the answer's way
	case <-time.After(w.within(20 * time.Millisecond)):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(http.NoBody), Request: req}, nil
}

// term is the fencing token that a run function sees.
func (w *world) tokenOf(ctx context.Context) uint64 {
	term, _ := k8sleaderelection.TermFromContext(ctx)
	if w.bug.sameToken {
		return 7
	}
	return term.Token
}

// electorKind is the kind of elector and lock of a process.
type electorKind int

const (
	configMapOnly electorKind = iota
	bothLocks
	leaseOnly
	clientGoPeer
)

func (m electorKind) String() string {
	return [...]string{"configmap", "both", "lease", "client-go"}[m]
}

// mix is a set of kinds of electors that may take part together.
type mix []electorKind

// mixes are all mixes. Each seed uses one of them. Package simulation has candidates that behave like istiod.
var mixes = []mix{
	{leaseOnly, leaseOnly, clientGoPeer},
	{configMapOnly, bothLocks},
	{bothLocks, leaseOnly},
}

// playRevisions are the revisions of processes.
var playRevisions = []string{"stable", "canary"}

// numberFrom returns the number in an environment variable.
func numberFrom(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: give a number", variable, text)
	}
	return n
}

// locked calls f with mu held.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// intn returns a random number below n.
func (w *world) intn(n int) (chosen int) {
	w.locked(func() { chosen = w.rand.IntN(n) })
	return chosen
}

// within returns a random duration below a maximum.
func (w *world) within(most time.Duration) time.Duration { return time.Duration(w.intn(int(most))) }

// wait waits for a random time below most.
func (w *world) wait(most time.Duration) { <-time.After(w.within(most)) }

// awaitUntouched waits until a new process can start. one-at-a-time does not cover a candidate that has never
// seen the record of a holder that may still be active.
func (w *world) awaitUntouched() {
	if d := time.Until(w.untouched); d > 0 {
		<-time.After(d)
	}
}

// newName returns an unused name.
func (w *world) newName() string {
	w.serial++
	return "p" + string(rune('a'+w.serial/26)) + string(rune('a'+w.serial%26))
}

// anyRevision returns a random revision.
func (w *world) anyRevision() string { return playRevisions[w.intn(len(playRevisions))] }

// anyKind returns a random kind of elector.
func (w *world) anyKind() electorKind { return w.mix[w.intn(len(w.mix))] }

// isCalm reports whether there are no more faults.
func (w *world) isCalm() (is bool) {
	w.locked(func() { is = w.calm })
	return is
}

// logf adds a line to the log.
func (w *world) logf(format string, args ...any) {
	w.locked(func() { fmt.Fprintf(&w.log, "%v "+format+"\n", append([]any{time.Since(w.began)}, args...)...) })
}

// violate records a violation.
func (w *world) violate(format string, args ...any) {
	w.locked(func() { w.violated(format, args...) })
}

// violated records a violation. The caller holds mu.
func (w *world) violated(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// playLines logs and counts the lines of a process.
type playLines struct{ p *process }

func (l *playLines) Write(b []byte) (int, error) {
	w := l.p.w
	w.logf("%s: %s", l.p.name, strings.TrimSpace(string(b)))
	w.locked(func() { l.p.lines = append(l.p.lines, time.Since(w.began)) })
	return len(b), nil
}

// fit is the fitness check of a process.
func (p *process) fit(context.Context) (unfit error) {
	p.w.locked(func() { unfit = p.unfit })
	return unfit
}

// fitness inverts the fitness of one process.
func (w *world) fitness() {
	p := w.pick()
	w.locked(func() {
		if p.unfit == nil {
			p.unfit = context.DeadlineExceeded
		} else {
			p.unfit = nil
		}
	})
	w.logf("%s is unfit: %v", p.name, p.unfit != nil)
}

// bug is a planted bug.
type bug struct {
	write      faultyWrite // of Leases
	givesUp    bool        // no write succeeds after the faults
	quiet      bool        // the watches have no events
	ungated    bool        // the work's writes pass no gate
	leavesWork bool        // functions return before their work has ended
	sameToken  bool        // the token does not grow
	unwatched  bool        // the watchers miss each change of the default revision
	// wavers is the interval at which each watcher changes its default revision.
	wavers time.Duration
}

// faultyWrite replaces creates and updates. send sends a request.
type faultyWrite func(ctx context.Context, lease *coordinationv1.Lease, send sendLease) (*coordinationv1.Lease, error)

type (
	leasesOf  = coordinationv1client.LeaseInterface
	sendLease = func(*coordinationv1.Lease) (*coordinationv1.Lease, error)
)

// faultyLeases is a client for Leases with a bug in its writes.
type faultyLeases struct {
	leasesOf
	write faultyWrite
}

func (f faultyLeases) Leases(string) leasesOf { return f }

func (f faultyLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return f.write(ctx, lease, func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Create(ctx, l, opts) })
}

func (f faultyLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return f.write(ctx, lease, func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Update(ctx, l, opts) })
}

// hopeful reports each write as stored, even after an error.
func hopeful(_ context.Context, lease *coordinationv1.Lease, send sendLease) (*coordinationv1.Lease, error) {
	stored, err := send(lease)
	version, bad := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if err == nil || bad != nil {
		return stored, err
	}
	stored = lease.DeepCopy()
	stored.ResourceVersion = strconv.FormatUint(version+1, 10)
	return stored, nil
}

// insists retries a rejected request without a pause.
func insists(ctx context.Context, lease *coordinationv1.Lease, send sendLease) (stored *coordinationv1.Lease, err error) {
	for range 100 {
		if stored, err = send(lease); err == nil || ctx.Err() != nil {
			break
		}
	}
	return stored, err
}

// playBugs has a planted bug for each check, with the violation that must be found.
var playBugs = map[string]struct {
	bug
	shows string
}{
	"the work's writes pass no gate":             {bug{ungated: true}, "writes while"},
	"functions return before their work has":     {bug{leavesWork: true}, "and its functions ran"},
	"a token that does not grow":                 {bug{sameToken: true}, "has the token"},
	"the default revision changes without event": {bug{unwatched: true}, "not of the default revision"},
	"the default revision wavers":                {bug{wavers: 2 * time.Second}, "for no cause"},
	"each write counts as stored":                {bug{write: hopeful}, "started while"},
	"a refused write is sent again and again":    {bug{write: insists}, "about one object"},
	"a watch without events":                     {bug{quiet: true}, "works false, sent"},
	"no write succeeds after the faults":         {bug{givesUp: true}, "no candidate leads"},
}

// bugSeeds is the maximum number of seeds until a planted bug is found. The rarest bug appears in one of about ten seeds.
const bugSeeds = 200

// The random run finds each planted bug.
func TestRandomElections_PlantedBugs(t *testing.T) {
	for name, b := range playBugs {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(bugSeeds) {
				for _, v := range playElection(t, seed, b.bug).violations {
					if strings.Contains(v, b.shows) {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Errorf("no violation %q in %d seeds", b.shows, bugSeeds)
		})
	}
}
