package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// fenceWatch is the fence's self-test. It tries guarded writes, dry and past the gate, as
// this process: while it leads they must be admitted, and otherwise refused.
type fenceWatch struct {
	on     bool
	client kube.Client
	events k8sresourcelock.EventRecorder
	log    *slog.Logger
	stands *prometheus.GaugeVec
	guards *prometheus.GaugeVec
	checks *prometheus.CounterVec

	// The self-test looks at all elections whenever a term begins or has ended, or a fence's
	// policies were changed, and every now and then: what changes a fence may also be unseen.
	wake   wakeup
	every  time.Duration
	probes map[*leaderelection.LeaderElection][]fence.Probe

	mu     sync.Mutex
	states map[*leaderelection.LeaderElection]fenceState
}

// fenceState is what the self-test of an election found, at /debug/elections.
type fenceState struct {
	// Stands: the fence did what it should.
	Stands bool `json:"stands"`
	// Leading is what this process was when it tried.
	Leading bool `json:"leading"`
	// Answer is what became of the write: admitted, refused or unclear.
	Answer string `json:"answer"`
	// Detail is what the API server said.
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
	// Guards are the answers by what is guarded.
	Guards []guardState `json:"guards,omitempty"`
}

// guardState is what the self-test found of one group of guarded writes.
type guardState struct {
	Guard  string `json:"guard"`
	Stands bool   `json:"stands"`
	Answer string `json:"answer"`
}

const (
	// checkTimeout bounds one write of the self-test.
	checkTimeout = 5 * time.Second
	// checkPause and checkTries: a look that was disturbed by a change, or that saw the
	// API server lag behind the lock, is repeated.
	checkPause = 100 * time.Millisecond
	checkTries = 30
	// checkEvery is how often to look while no term begins or ends.
	checkEvery = time.Minute
)

func newFenceWatch(client kube.Client, events k8sresourcelock.EventRecorder, registry prometheus.Registerer, log *slog.Logger, config Config) *fenceWatch {
	w := &fenceWatch{
		on: config.Fence && !config.DisableElections, client: client, events: events, log: log, wake: newWakeup(), every: config.fenceEvery,
		probes: map[*leaderelection.LeaderElection][]fence.Probe{}, states: map[*leaderelection.LeaderElection]fenceState{},
		stands: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "incumbent_fence_stands",
			Help: "Whether the API server did with this process's guarded writes of that election what it should: 1, or 0. Absent while unknown.",
		}, []string{"name"}),
		guards: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "incumbent_fence_guard_stands",
			Help: "As incumbent_fence_stands, for one group of guarded writes. Absent while unknown.",
		}, []string{"name", "guard"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "incumbent_fence_checks_total",
			Help: "How many dry-run writes tried the fence of that election, by what this process was (leading, following) and the answer (admitted, refused, unclear).",
		}, []string{"name", "role", "answer"}),
	}
	if w.every == 0 {
		w.every = checkEvery
	}
	registry.MustRegister(w.stands, w.guards, w.checks) // which show nothing without a fence
	return w
}

// watch has the self-test look at an election.
func (w *fenceWatch) watch(le *leaderelection.LeaderElection, row election) {
	if !w.on {
		return
	}
	now := le.Status()
	kind := fence.ConfigMap
	if now.LockType != leaderelection.ConfigMapLock.String() {
		kind = fence.Lease
	}
	w.probes[le] = fence.Probes(fence.Declaration{Election: now.Lock, Namespace: now.Namespace, Lock: kind, Guards: row.writes})
	w.wake.onTerms(le)
}

// run looks at the start, whenever it was woken, and every now and then.
func (w *fenceWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	if w.on {
		watching.Go(func() { install.Watch(ctx, w.client.Kube(), w.wake.nudge, w.log) })
	}
	for {
		for le := range w.probes {
			w.check(ctx, le)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case <-ticker.C:
		}
	}
}

// check tries an election's probes and reports the first that is not answered as it
// should be, or else the last.
func (w *fenceWatch) check(ctx context.Context, le *leaderelection.LeaderElection) {
	found, tried := fenceState{}, false
	var guards []guardState
	for _, p := range w.probes[le] {
		if p.Object == nil {
			continue // nothing is known to try it with
		}
		state := w.try(ctx, le, p)
		if ctx.Err() != nil {
			return
		}
		guards = append(guards, guardState{Guard: p.Guard.String(), Stands: state.Stands, Answer: state.Answer})
		if !tried || found.Stands {
			found, tried = state, true
		}
	}
	if tried {
		found.Guards = guards
		w.measure(le, guards)
		w.report(le, found)
	}
}

// measure sets the metric of each group of guarded writes.
func (w *fenceWatch) measure(le *leaderelection.LeaderElection, guards []guardState) {
	name := le.Status().Lock
	for _, g := range guards {
		switch {
		case g.Answer == "" || g.Answer == install.Unclear.String():
			w.guards.DeleteLabelValues(name, g.Guard)
		case g.Stands:
			w.guards.WithLabelValues(name, g.Guard).Set(1)
		default:
			w.guards.WithLabelValues(name, g.Guard).Set(0)
		}
	}
}

// event tells of a fence on its lock, where those look who care about the election.
func (w *fenceWatch) event(le *leaderelection.LeaderElection, kind, format string, args ...any) {
	status := le.Status()
	object, single := objectKinds[status.LockType]
	if !single {
		object = objectKinds[leaderelection.LeaseLock.String()] // of two locks, the one that a fence goes by
	}
	object.Namespace, object.Name = status.Namespace, status.Lock
	w.events.Eventf(&object, kind, "WriteFence", format, args...)
}

// try tries a probe until the answer is what it should be, or has been another for a
// while; it returns the zero state when the election did not settle in that time.
func (w *fenceWatch) try(ctx context.Context, le *leaderelection.LeaderElection, p fence.Probe) (last fenceState) {
	for range checkTries {
		state, settled := w.look(ctx, le, p)
		last = fenceState{}
		if settled {
			last = state
		}
		if last.Stands || ctx.Err() != nil {
			break
		}
		_ = kube.Pause(ctx, checkPause)
	}
	return last
}

// look tries a probe once. It is not settled when this process began or ended a term on
// the way, or is about to.
func (w *fenceWatch) look(ctx context.Context, le *leaderelection.LeaderElection, p fence.Probe) (state fenceState, settled bool) {
	before := le.Status()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	answer, err := install.Try(ctx, w.client.Dynamic(), p)
	cancel()
	after := le.Status()
	state, settled = judged(before, after, answer, err)
	state.At = time.Now()
	w.checks.WithLabelValues(after.Lock, state.role(), state.Answer).Inc()
	return state, settled
}

// judged is what an answer says of a fence, given what this process was before it asked and
// after.
func judged(before, after leaderelection.Status, answer install.Answer, err error) (state fenceState, settled bool) {
	want := install.Refused
	if after.Leading {
		want = install.Admitted
	}
	state = fenceState{Stands: answer == want, Leading: after.Leading, Answer: answer.String()}
	if err != nil {
		state.Detail = err.Error()
	}
	// Who settles or drains holds the lock and does not lead. Nor does a process that was
	// killed and came back, and has not seen yet that the lock still names it.
	mine := after.Holder == after.Identity || after.Holder == "" && answer == install.Admitted
	quiet := after.Leading || !mine
	return state, quiet && before.Leading == after.Leading && before.Token == after.Token && before.Holder == after.Holder
}

// role is what this process was when it tried, in the metric's words.
func (s fenceState) role() string {
	if s.Leading {
		return "leading"
	}
	return "following"
}

var errUnsettled = errors.New("the election did not settle while the fence was tried")

// report keeps what was found, and logs it when it is another than before. What is not
// known now is not what was known last.
func (w *fenceWatch) report(le *leaderelection.LeaderElection, state fenceState) {
	name := le.Status().Lock
	w.mu.Lock()
	last := w.states[le]
	if state.Answer == "" {
		delete(w.states, le)
	} else {
		w.states[le] = state
	}
	w.mu.Unlock()
	news := last.Answer != state.Answer || last.Leading != state.Leading || last.Stands != state.Stands
	log := w.log.With("election", name, "leading", state.Leading, "answer", state.Answer)
	switch {
	case state.Answer == "":
		w.stands.DeleteLabelValues(name)
		w.log.Debug("fence was not tried", "election", name, "err", errUnsettled)
	case state.Answer == install.Unclear.String():
		w.stands.DeleteLabelValues(name)
		if news {
			log.Warn("whether the fence stands is not clear", "detail", state.Detail)
		}
	case !state.Stands:
		w.stands.WithLabelValues(name).Set(0)
		if news {
			log.Error("the fence does not stand; pilot fence verify says more", "detail", state.Detail)
			w.event(le, corev1.EventTypeWarning, "the fence does not stand: a write by %s, leading %t, was %s", le.Status().Identity, state.Leading, state.Answer)
		}
	default:
		w.stands.WithLabelValues(name).Set(1)
		if news {
			log.Info("fence stands", "detail", state.Detail)
			if last.Answer != "" && !last.Stands {
				w.event(le, corev1.EventTypeNormal, "the fence stands again")
			}
		}
	}
}

// state is what was found last; nil without a fence or before its first test.
func (w *fenceWatch) state(le *leaderelection.LeaderElection) *fenceState {
	w.mu.Lock()
	defer w.mu.Unlock()
	state, known := w.states[le]
	if !known {
		return nil
	}
	return &state
}
