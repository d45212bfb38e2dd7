package install

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

var (
	errAway = errors.New("the API server is away")

	following = leaderelection.Status{Identity: "me", Status: k8sleaderelection.Status{Holder: "you"}, Lock: "e", Namespace: "sys", LockType: "lease"}
	leading   = leaderelection.Status{
		Identity: "me", Lock: "e", Namespace: "sys", LockType: "lease",
		Status: k8sleaderelection.Status{Holder: "me", Term: k8sleaderelection.Term{Token: 7}, Leading: true},
	}
)

// stubbed is a configuration whose requests the test answers.
func stubbed(answer func(apiserver.Request) apiserver.Fault) *rest.Config {
	s := apiserver.New()
	s.On(answer)
	config := s.Config()
	config.Host = "https://10.0.0.1:6443"
	return config
}

// away is the answer of an API server that cannot be reached.
func away(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: errAway} }

func clientOf(t *testing.T, config *rest.Config) kube.Client {
	t.Helper()
	client, err := newClient(config)
	harness.Must(t, err)
	return client
}

// selfTested is a SelfTest of the election e, with stubbed answers to its writes.
type selfTested struct {
	*SelfTest
	log    harness.Log
	events []string

	mu     sync.Mutex
	status leaderelection.Status
	tried  []string
	answer func(name string) error
}

func (s *selfTested) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	about := object.(*corev1.ObjectReference)
	s.events = append(s.events, fmt.Sprintf("%s %s %s/%s %s: ", kind, about.Kind, about.Namespace, about.Name, reason)+fmt.Sprintf(message, args...))
}

func (s *selfTested) set(status leaderelection.Status, answer error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
	s.answer = func(string) error { return answer }
}

func (s *selfTested) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tried)
}

func newSelfTested(t *testing.T, guarded ...string) *selfTested {
	t.Helper()
	s := &selfTested{status: following}
	client := clientOf(t, stubbed(func(r apiserver.Request) apiserver.Fault {
		if r.Verb != "create" || r.URL.Query().Get("dryRun") != metav1.DryRunAll {
			return away(r) // the watch of the policies
		}
		if r.Limit == 0 || r.Limit > tryTimeout {
			t.Errorf("%s may take until %v", r, r.Limit)
		}
		object := unstructured.Unstructured{Object: r.Body}
		s.mu.Lock()
		s.tried = append(s.tried, object.GetName())
		answer := s.answer
		s.mu.Unlock()
		return apiserver.Fault{Object: object.Object, Err: answer(object.GetName())}
	}))
	s.SelfTest = NewSelfTest(client, SelfTestConfig{Events: s, Logger: slog.New(slog.NewTextHandler(&s.log, nil))})
	guards := []fence.Guard{{Resources: []string{"widgets"}, Group: "x.y", Names: []string{"w"}}} // which cannot be tried
	for _, name := range guarded {
		guards = append(guards, fence.Guard{Resources: []string{"configmaps"}, Names: []string{name}})
	}
	s.Add(func() leaderelection.Status {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.status
	}, guards)
	return s
}

// metrics returns all samples as name{labels} value.
func metrics(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	harness.Must(t, err)
	var all []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue()
			if family.GetType() == dto.MetricType_COUNTER {
				value = m.GetCounter().GetValue()
			}
			all = append(all, fmt.Sprintf("%s %s %v", strings.TrimPrefix(family.GetName(), "incumbent_fence_"), strings.Join(labels, ","), value))
		}
	}
	return all
}

func TestSelfTest_JudgesAnswers(t *testing.T) {
	settling := leaderelection.Status{Identity: "me", Status: k8sleaderelection.Status{Holder: "me"}}
	free := leaderelection.Status{Identity: "me"}
	changed := func(s leaderelection.Status, change func(*leaderelection.Status)) leaderelection.Status {
		change(&s)
		return s
	}
	for name, x := range map[string]struct {
		before, after     leaderelection.Status
		answer            fence.Answer
		inEffect, settled bool
	}{
		"follower refused":  {following, following, fence.Refused, true, true},
		"follower admitted": {following, following, fence.Admitted, false, true},
		"follower unclear":  {following, following, fence.Unclear, false, true},
		"leader admitted":   {leading, leading, fence.Admitted, true, true},
		"leader refused":    {leading, leading, fence.Refused, false, true},
		"leader unclear":    {leading, leading, fence.Unclear, false, true},
		"settling admitted": {settling, settling, fence.Admitted, false, false},
		"settling refused":  {settling, settling, fence.Refused, true, false},
		"free refused":      {free, free, fence.Refused, true, true},
		"free admitted":     {free, free, fence.Admitted, false, false}, // the process may just have acquired the lock
		"term began":        {settling, leading, fence.Admitted, true, false},
		"term ended":        {leading, following, fence.Refused, true, false},
		"other holder":      {changed(following, func(s *leaderelection.Status) { s.Holder = "she" }), following, fence.Refused, true, false},
		"other term":        {changed(leading, func(s *leaderelection.Status) { s.Term.Token = 6 }), leading, fence.Admitted, true, false},
		"stopped leading":   {leading, changed(leading, func(s *leaderelection.Status) { s.Leading, s.Holder = false, "you" }), fence.Refused, true, false},
		"started leading":   {changed(leading, func(s *leaderelection.Status) { s.Leading = false }), leading, fence.Admitted, true, false},
		"other phase":       {changed(following, func(s *leaderelection.Status) { s.Phase = "x" }), following, fence.Refused, true, true},
	} {
		state, settled := judge(x.before, x.after, x.answer, errAway)
		if settled != x.settled || state.InEffect != x.inEffect || state.Leading != x.after.Leading || state.Answer != x.answer || state.Detail != errAway.Error() {
			t.Errorf("%s: %+v, settled: %t", name, state, settled)
		}
	}
}

func TestSelfTest_SeveralGuards(t *testing.T) {
	refused := byPolicy(attempt{})
	for name, x := range map[string]struct {
		answers map[string]error
		answer  fence.Answer
		want    []string // metrics
	}{
		"all refused": {
			map[string]error{"a": refused, "b": refused, "c": refused}, "refused",
			[]string{"checks_total refused,e,following 3", "guard_in_effect configmaps a,e 1", "guard_in_effect configmaps b,e 1", "guard_in_effect configmaps c,e 1", "in_effect e 1"},
		},
		"first unclear": {
			map[string]error{"a": errAway, "b": refused, "c": refused}, "unclear",
			[]string{"checks_total refused,e,following 2", "checks_total unclear,e,following 30", "guard_in_effect configmaps b,e 1", "guard_in_effect configmaps c,e 1"},
		},
		"last admitted": {
			map[string]error{"a": refused, "b": refused, "c": nil}, "admitted",
			[]string{"checks_total admitted,e,following 30", "checks_total refused,e,following 2", "guard_in_effect configmaps a,e 1", "guard_in_effect configmaps b,e 1", "guard_in_effect configmaps c,e 0", "in_effect e 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSelfTested(t, "a", "b", "c")
				s.answer = func(name string) error { return x.answers[name] }
				began := time.Now()
				s.test(t.Context(), s.elections[0])
				if took := time.Since(began); took != time.Duration(max(0, s.tries()-2)/maxTries*maxTries)*tryPause {
					t.Errorf("%d tries took %v", s.tries(), took)
				}
				if got := metrics(t, s); !slices.Equal(got, x.want) {
					t.Errorf("metrics %q", got)
				}
				if state := s.State("e"); state == nil || state.Answer != x.answer || state.InEffect != (x.answer == "refused") || len(state.Guards) != 3 {
					t.Errorf("state %+v", state)
				}
			})
		})
	}
}

func TestSelfTest_RepeatsUnexpectedAnswers(t *testing.T) {
	// While no candidate holds the lock, an admitted write is unsettled.
	free := leaderelection.Status{Identity: "me", Lock: "e"}
	const unclear, unsettled, refused = "unclear", "admitted", "refused"
	for name, x := range map[string]struct {
		answers []string // the last one repeats
		want    fence.Answer
		tries   int
	}{
		"refused":            {[]string{refused}, refused, 1},
		"refused in the end": {[]string{unclear, unsettled, unclear, refused}, refused, 4},
		"unclear":            {[]string{unsettled, unclear}, unclear, maxTries},
		"unsettled":          {[]string{unclear, unsettled}, "", maxTries},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSelfTested(t, "a")
				s.status = free
				s.answer = func(string) error {
					return map[string]error{unclear: errAway, refused: byPolicy(attempt{})}[x.answers[min(s.tries(), len(x.answers))-1]]
				}
				got := s.repeat(t.Context(), s.elections[0], s.elections[0].probes[0])
				if got.Answer != x.want || got.InEffect != (x.want == refused) || s.tries() != x.tries {
					t.Errorf("after %d tries: %+v", s.tries(), got)
				}
			})
		})
	}
}

func TestSelfTest_ReportsChanges(t *testing.T) {
	broken := func(leading bool, answer string) string {
		return fmt.Sprintf("fence is not in effect: a write by me (leading: %t) was %s", leading, answer)
	}
	const good, bad, unclear = `level=INFO msg="fence is in effect"`, `level=ERROR msg="fence is not in effect`, `level=WARN msg="cannot determine`
	for lock, kind := range map[string]string{"configmap": "ConfigMap", "lease": "Lease"} {
		s := newSelfTested(t, "a")
		now := following
		now.LockType = leaderelection.LockType(lock)
		about := kind + " sys/e WriteFence: "
		for i, step := range []struct {
			state  fence.State
			logged string
			event  string
			metric string
		}{
			{fence.State{Answer: "refused", InEffect: true, Detail: "d"}, good, "", "in_effect e 1"},
			{fence.State{Answer: "refused", InEffect: true}, "", "", "in_effect e 1"},
			{fence.State{Answer: "admitted", Leading: true, InEffect: true}, good, "", "in_effect e 1"},
			{fence.State{Answer: "admitted", Detail: "d"}, bad, "Warning " + about + broken(false, "admitted"), "in_effect e 0"},
			{fence.State{Answer: "admitted"}, "", "", "in_effect e 0"},
			{fence.State{Answer: "unclear"}, unclear, "", ""},
			{fence.State{Answer: "admitted"}, bad, "Warning " + about + broken(false, "admitted"), "in_effect e 0"},
			{fence.State{Answer: "refused", Leading: true}, bad, "Warning " + about + broken(true, "refused"), "in_effect e 0"},
			{fence.State{Answer: "refused", InEffect: true}, good, "Normal " + about + "fence is in effect again", "in_effect e 1"},
			{fence.State{Answer: "unclear", Detail: "d"}, unclear, "", ""},
			{fence.State{Answer: "unclear"}, "", "", ""},
			{fence.State{}, "", "", ""},
			{fence.State{Answer: "refused", InEffect: true}, good, "", "in_effect e 1"},
		} {
			before := s.log.String()
			s.events = nil
			s.report(now, step.state)
			logged := strings.TrimPrefix(s.log.String(), before)
			if (step.logged == "") != (logged == "") || !strings.Contains(logged, step.logged) || strings.Count(logged, "\n") > 1 ||
				logged != "" && !strings.Contains(logged, fmt.Sprintf("election=e leading=%t answer=%s", step.state.Leading, step.state.Answer)) ||
				strings.Contains(logged, "detail=d") != (logged != "" && step.state.Detail == "d") {
				t.Errorf("%s, step %d: logged %q, want %q", lock, i, logged, step.logged)
			}
			if got := strings.Join(s.events, "; "); got != step.event {
				t.Errorf("%s, step %d: event %q, want %q", lock, i, got, step.event)
			}
			if got := strings.Join(metrics(t, s), "; "); got != step.metric {
				t.Errorf("%s, step %d: metrics %q, want %q", lock, i, got, step.metric)
			}
			if state := s.State("e"); (state == nil) != (step.state.Answer == "") {
				t.Errorf("%s, step %d: state %+v", lock, i, state)
			}
		}
	}
}

func TestSelfTest_RunSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSelfTested(t, "a")
		s.set(following, byPolicy(attempt{}))
		stop := harness.Background(t, s.Run)
		tried := func(when string, want int) {
			t.Helper()
			if synctest.Wait(); s.tries() != want {
				t.Errorf("%s: %d tries, want %d", when, s.tries(), want)
			}
		}
		tried("at the start", 1)
		time.Sleep(10*s.Interval + time.Second)
		tried("after ten intervals", 11)
		s.Wake.Send()
		tried("after Wake", 12)
		s.set(following, errAway)
		s.Wake.Send()
		time.Sleep(time.Second) // in the middle of the repetitions
		before := s.State("e")
		began := time.Now()
		if stop(); time.Since(began) > 0 {
			t.Errorf("Run returned after %v", time.Since(began))
		}
		if after := s.State("e"); after.Answer != "refused" || after.At != before.At {
			t.Errorf("an interrupted test left %+v", after)
		}
		if n := s.log.Count(`verb="list ValidatingAdmissionPolicy`); n == 0 {
			t.Error("that the policies cannot be watched was not logged")
		}
	})
}

func TestSelfTest_ProbesByLockType(t *testing.T) {
	for lock, want := range map[string]record.Kind{"configmap": record.ConfigMap, "lease": record.Lease} {
		s := NewSelfTest(clientOf(t, stubbed(nil)), SelfTestConfig{Interval: time.Second})
		s.Add(func() leaderelection.Status {
			return leaderelection.Status{Lock: "e", Namespace: "sys", LockType: leaderelection.LockType(lock)}
		}, []fence.Guard{configMap()})
		if p := s.elections[0].probes[0]; p.Lock != want || p.Namespace != "sys" || p.Name != "e" || s.Interval != time.Second {
			t.Errorf("%s: %s %s/%s every %v", lock, p.Lock, p.Namespace, p.Name, s.Interval)
		}
	}
	if state := (*SelfTest)(nil).State("e"); state != nil {
		t.Errorf("without a fence: %+v", state)
	}
}

// The objects of probes have the labels of the revision.
func TestSelfTest_OwnLabels(t *testing.T) {
	for lock, want := range map[string]string{"deployment-stable": "stable", "shared": "{revision}"} {
		s := NewSelfTest(clientOf(t, stubbed(nil)), SelfTestConfig{})
		s.Add(func() leaderelection.Status {
			return leaderelection.Status{Lock: lock, Namespace: "istio-system", Key: "stable"}
		}, []fence.Guard{{Resources: []string{"services"}, Own: map[string]string{"revision": "{revision}"}}})
		if got := s.elections[0].probes[0].Object.GetLabels()["revision"]; got != want {
			t.Errorf("%s: the label is %q, want %q", lock, got, want)
		}
	}
}
