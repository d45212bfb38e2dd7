package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/fence/install"
)

// fenceWatch is the fence's self-test. It tries guarded writes, dry and past the gate, as
// this process: while it leads they must be admitted, and otherwise refused.
type fenceWatch struct {
	on     bool
	client dynamic.Interface
	log    *slog.Logger
	stands *prometheus.GaugeVec
	checks *prometheus.CounterVec

	// wake has room for one: the self-test looks at all elections whenever a term begins
	// or has ended.
	wake   chan struct{}
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
}

const (
	// checkTimeout bounds one write of the self-test.
	checkTimeout = 5 * time.Second
	// checkPause and checkTries: a look that was disturbed by a change, or that saw the
	// API server lag behind the lock, is repeated.
	checkPause = 100 * time.Millisecond
	checkTries = 30
)

func newFenceWatch(client dynamic.Interface, registry prometheus.Registerer, log *slog.Logger, on bool) *fenceWatch {
	w := &fenceWatch{
		on: on, client: client, log: log, wake: make(chan struct{}, 1),
		probes: map[*leaderelection.LeaderElection][]fence.Probe{}, states: map[*leaderelection.LeaderElection]fenceState{},
		stands: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "incumbent_fence_stands",
			Help: "Whether the API server did with this process's guarded writes of that election what it should: 1, or 0. Absent while unknown.",
		}, []string{"name"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "incumbent_fence_checks_total",
			Help: "How many dry-run writes tried the fence of that election, by what this process was (leading, following) and the answer (admitted, refused, unclear).",
		}, []string{"name", "role", "answer"}),
	}
	if on {
		registry.MustRegister(w.stands, w.checks)
	}
	return w
}

// watch has the self-test look at an election. Its run function tells of terms; it is one
// of those that the election waits for, and ends at once.
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
	le.AddRunContext(func(ctx context.Context) error {
		w.nudge()
		<-ctx.Done()
		w.nudge()
		return nil
	})
}

func (w *fenceWatch) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // one is due anyway
	}
}

// run looks at the start, and whenever it was woken.
func (w *fenceWatch) run(ctx context.Context) error {
	for {
		for le, probes := range w.probes {
			for _, p := range probes {
				w.check(ctx, le, p)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
	}
}

// check tries a probe until the answer is what it should be, or has been another for a while.
func (w *fenceWatch) check(ctx context.Context, le *leaderelection.LeaderElection, p fence.Probe) {
	if p.Object == nil {
		return // nothing is known to try it with
	}
	var last fenceState
	for range checkTries {
		state, settled := w.look(ctx, le, p)
		if ctx.Err() != nil {
			return
		}
		last = fenceState{}
		if settled {
			last = state
		}
		if last.Stands {
			break
		}
		pause := time.NewTimer(checkPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
	w.report(le, last)
}

// look tries a probe once. It is not settled when this process began or ended a term on
// the way, or is about to.
func (w *fenceWatch) look(ctx context.Context, le *leaderelection.LeaderElection, p fence.Probe) (state fenceState, settled bool) {
	before := le.Status()
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	answer, err := install.Try(bounded, w.client, p)
	cancel()
	after := le.Status()
	state = fenceState{Leading: after.Leading, Answer: answer.String(), At: time.Now()}
	if err != nil {
		state.Detail = err.Error()
	}
	role := "following"
	if after.Leading {
		role = "leading"
	}
	w.checks.WithLabelValues(after.Lock, role, answer.String()).Inc()
	want := install.Refused
	if after.Leading {
		want = install.Admitted
	}
	state.Stands = answer == want
	// Who settles or drains holds the lock and does not lead. Nor does a process that was
	// killed and came back, and has not seen yet that the lock still names it.
	mine := after.Holder == after.Identity || after.Holder == "" && answer == install.Admitted
	quiet := after.Leading || !mine
	return state, quiet && before.Leading == after.Leading && before.Token == after.Token && before.Holder == after.Holder
}

var errUnsettled = errors.New("the election did not settle while the fence was tried")

// report keeps what was found, and logs it when it is another than before.
func (w *fenceWatch) report(le *leaderelection.LeaderElection, state fenceState) {
	if state.Answer == "" {
		w.log.Debug("fence was not tried", "election", le.Status().Lock, "error", errUnsettled)
		return
	}
	w.mu.Lock()
	last, known := w.states[le]
	w.states[le] = state
	w.mu.Unlock()
	name := le.Status().Lock
	log := w.log.With("election", name, "leading", state.Leading, "answer", state.Answer)
	switch {
	case state.Answer == install.Unclear.String():
		w.stands.DeleteLabelValues(name)
		log.Warn("whether the fence stands is not clear", "detail", state.Detail)
		return
	case !state.Stands:
		w.stands.WithLabelValues(name).Set(0)
		log.Error("the fence does not stand; pilot fence verify says more", "detail", state.Detail)
		return
	}
	w.stands.WithLabelValues(name).Set(1)
	if !known || !last.Stands || last.Leading != state.Leading {
		log.Info("fence stands", "detail", state.Detail)
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
