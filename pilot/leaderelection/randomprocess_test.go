package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// process is one process of a random run: a candidate of this project or a peer.
type process struct {
	w              *world
	name, revision string
	kind           electorKind
	l              *LeaderElection // nil: a peer
	watcher        *testWatcher
	clients        []*locktest.Client // to the ConfigMap and to the Lease
	writer         string             // whose the clients' writes are: processes that come again share their name
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
	refuse map[locktest.Verb]error
	sent   [2][]time.Duration
	asked  time.Duration // when it sent its last request
	verbs  [2]map[locktest.Verb]int
}

// span is one run of the run functions. to is zero while they run.
type span struct{ from, to time.Time }

// start runs a process of that name.
func (w *world) start(name, revision string, m electorKind) {
	p := &process{w: w, name: name, revision: revision, kind: m, done: make(chan struct{}), refuse: map[locktest.Verb]error{}}
	p.verbs = [2]map[locktest.Verb]int{{}, {}}
	p.poor = m == bothLocks && w.intn(6) == 0
	p.writer = fmt.Sprintf("%s, process %d", name, len(w.all))
	p.clients = []*locktest.Client{w.objects.Client(p.writer), w.leases.Client(p.writer)}
	for i, c := range p.clients {
		c.SetFault(func(v locktest.Verb) locktest.Fault { return p.fault(i, v) })
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
		if err != nil {
			w.t.Fatal(err)
		}
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
