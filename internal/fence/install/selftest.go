package install

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// tryTimeout limits one write of the self-test.
	tryTimeout = 10 * time.Second
	// A write with an unexpected result is repeated up to maxTries times, because the term may have changed and the
	// API server may lag behind the lock.
	tryPause = 100 * time.Millisecond
	maxTries = 30
	// selfTestInterval is the default of SelfTestConfig.Interval.
	selfTestInterval = time.Minute
)

// SelfTestConfig configures a SelfTest.
type SelfTestConfig struct {
	Events k8sresourcelock.EventRecorder
	Logger *slog.Logger
	// Interval between tests while nothing changes. The default is a minute.
	Interval time.Duration
}

// SelfTest checks that the fence is in effect for the elections of this process. It sends guarded writes as dry runs,
// with the credentials of the process and without the gate. They must be admitted while the process leads and refused
// otherwise. It is also a prometheus.Collector.
type SelfTest struct {
	SelfTestConfig
	client kube.Client
	// Wake starts a test soon. Send it whenever a term begins or ends.
	Wake      apirequest.Signal
	elections []tested
	checks    *prometheus.CounterVec
	latency   apirequest.Latency

	mu     sync.Mutex
	states map[string]fence.State // by lock name
}

// tested is an election with the writes that test its fence.
type tested struct {
	status func() leaderelection.Status
	probes []fence.Probe
}

// NewSelfTest returns a SelfTest. The client must not be gated.
func NewSelfTest(client kube.Client, config SelfTestConfig) *SelfTest {
	if config.Interval == 0 {
		config.Interval = selfTestInterval
	}
	return &SelfTest{
		SelfTestConfig: config, client: client, Wake: apirequest.NewSignal(), states: map[string]fence.State{},
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "incumbent_fence_checks_total",
			Help: "Number of dry-run writes that tested the fence of an election, by the role of the process (leading, following) and the result (admitted, refused, unclear).",
		}, []string{"name", "role", "answer"}),
	}
}

// Add adds an election whose fence has these guards.
func (s *SelfTest) Add(status func() leaderelection.Status, guards []fence.Guard) {
	now := status()
	declaration := fence.Declaration{Election: now.Lock, Namespace: now.Namespace, Lock: now.LockType, Guards: guards}
	if election, found := strings.CutSuffix(now.Lock, "-"+now.Key); found && now.Key != "" {
		declaration.Election, declaration.Revisions = election, []string{now.Key} // guards may have labels with the revision
	}
	e := tested{status: status}
	for _, p := range fence.Probes(declaration) {
		if p.Object != nil {
			e.probes = append(e.probes, p)
		}
	}
	s.elections = append(s.elections, e)
}

// Run tests all elections at its start, after Wake, when policies change, and after each Interval.
func (s *SelfTest) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { Watch(ctx, s.client.Kube(), s.Wake.Send, s.Logger) })
	for {
		for _, e := range s.elections {
			s.test(ctx, e)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Wake:
		case <-ticker.C:
		}
	}
}

// test tries the probes of an election and reports the first wrong result, or else the last result.
func (s *SelfTest) test(ctx context.Context, e tested) {
	if len(e.probes) == 0 {
		return
	}
	var guards []fence.GuardState
	found := fence.State{InEffect: true}
	for _, p := range e.probes {
		state := s.repeat(ctx, e, p)
		if ctx.Err() != nil {
			return
		}
		guards = append(guards, fence.GuardState{Guard: p.Guard.String(), InEffect: state.InEffect, Answer: state.Answer})
		if found.InEffect {
			found = state
		}
	}
	found.Guards = guards
	s.report(e.status(), found)
}

// repeat tries a probe until the result is as it should be, or maxTries times. It returns the zero State if the
// election was changing in the last try.
func (s *SelfTest) repeat(ctx context.Context, e tested, p fence.Probe) (last fence.State) {
	for range maxTries {
		state, settled := s.try(ctx, e, p)
		last = fence.State{}
		if settled {
			last = state
		}
		if last.InEffect || apirequest.Pause(ctx, tryPause) != nil {
			break
		}
	}
	return last
}

// try tries a probe once. settled is false if a term began or ended during the write, or is about to.
func (s *SelfTest) try(ctx context.Context, e tested, p fence.Probe) (state fence.State, settled bool) {
	before := e.status()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	answer, err := apirequest.Twice(ctx, &s.latency, apirequest.Rejected, func(ctx context.Context) (fence.Answer, error) {
		// The kinds that probes create are namespaced.
		return createWrite(kind{p.Resource, true}, p.Object.GetNamespace(), p.Object).try(ctx, s.client.Dynamic())
	})
	cancel()
	after := e.status()
	state, settled = judge(before, after, answer, err)
	state.At = time.Now()
	role := "following"
	if state.Leading {
		role = "leading"
	}
	s.checks.WithLabelValues(after.Lock, role, string(state.Answer)).Inc()
	return state, settled
}

// judge compares an answer with the status of the process before and after the write.
func judge(before, after leaderelection.Status, answer fence.Answer, err error) (state fence.State, settled bool) {
	want := fence.Refused
	if after.Leading {
		want = fence.Admitted
	}
	state = fence.State{InEffect: answer == want, Leading: after.Leading, Answer: answer}
	if err != nil {
		state.Detail = err.Error()
	}
	// The recorded holder does not lead while it settles or drains, or before it has read the lock after a restart.
	holder := after.Holder == after.Identity || after.Holder == "" && answer == fence.Admitted
	stable := before.Leading == after.Leading && before.Term == after.Term && before.Holder == after.Holder
	return state, stable && (after.Leading || !holder)
}

// report stores a result, and logs it if it differs from the previous one.
func (s *SelfTest) report(now leaderelection.Status, state fence.State) {
	s.mu.Lock()
	last := s.states[now.Lock]
	if state.Answer == "" {
		delete(s.states, now.Lock)
	} else {
		s.states[now.Lock] = state
	}
	s.mu.Unlock()
	log := s.Logger.With("election", now.Lock, "leading", state.Leading, "answer", state.Answer)
	if state.Answer == "" {
		log.Debug("fence was not tested", "err", "the leader changed during the test")
		return
	}
	if last.Answer == state.Answer && last.Leading == state.Leading && last.InEffect == state.InEffect {
		return
	}
	switch {
	case state.Answer == fence.Unclear:
		log.Warn("cannot determine whether the fence is in effect", "detail", state.Detail)
	case !state.InEffect:
		log.Error("fence is not in effect. Run `pilot fence verify` for details", "detail", state.Detail)
		s.event(now, corev1.EventTypeWarning, "fence is not in effect: a write by %s (leading: %t) was %s", now.Identity, state.Leading, state.Answer)
	default:
		log.Info("fence is in effect", "detail", state.Detail)
		if last.Answer != "" && !last.InEffect {
			s.event(now, corev1.EventTypeNormal, "fence is in effect again")
		}
	}
}

// event records an Event on the lock object that the fence uses.
func (s *SelfTest) event(now leaderelection.Status, kind, format string, args ...any) {
	object := corev1.ObjectReference{Namespace: now.Namespace, Name: now.Lock}
	object.APIVersion, object.Kind = now.LockType.Object()
	s.Events.Eventf(&object, kind, "WriteFence", format, args...)
}

// Tests reports whether an election has guards that the self-test can test, by the name of its lock.
func (s *SelfTest) Tests(lock string) bool {
	return s != nil && slices.ContainsFunc(s.elections, func(e tested) bool { return len(e.probes) > 0 && e.status().Lock == lock })
}

// State returns the last result for an election, by the name of its lock. It is nil if no result is known.
func (s *SelfTest) State(lock string) *fence.State {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, known := s.states[lock]
	if !known {
		return nil
	}
	return &state
}

var (
	inEffectDesc = prometheus.NewDesc("incumbent_fence_in_effect",
		"1 if the API server treated the guarded writes of this process as it should, 0 if not. Absent while unknown.", []string{"name"}, nil)
	guardDesc = prometheus.NewDesc("incumbent_fence_guard_in_effect",
		"Like incumbent_fence_in_effect, for one guard. Absent while unknown.", []string{"name", "guard"}, nil)
)

// Describe implements prometheus.Collector.
func (s *SelfTest) Describe(ch chan<- *prometheus.Desc) {
	ch <- inEffectDesc
	ch <- guardDesc
	s.checks.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *SelfTest) Collect(ch chan<- prometheus.Metric) {
	s.checks.Collect(ch)
	gauge := func(desc *prometheus.Desc, answer fence.Answer, inEffect bool, labels ...string) {
		if answer == "" || answer == fence.Unclear {
			return
		}
		value := 0.0
		if inEffect {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	s.mu.Lock()
	states := maps.Clone(s.states) // ch may block, and the loops of electors call State
	s.mu.Unlock()
	for name, state := range states {
		gauge(inEffectDesc, state.Answer, state.InEffect, name)
		for _, g := range state.Guards {
			gauge(guardDesc, g.Answer, g.InEffect, name, g.Guard)
		}
	}
}
