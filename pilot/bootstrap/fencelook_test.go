package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// What the self-test makes of the API server's answers, and what it tells of that. That a real one
// answers so is in selftest_test.go.

// What one answer says: a leader's write is to be admitted and nobody else's, and it counts unless
// a term began or ended on the way, or is about to.
func TestWhatAnAnswerSaysOfTheFence(t *testing.T) {
	follows := leaderelection.Status{Identity: "me", Holder: "you", Token: ""}
	leads := leaderelection.Status{Identity: "me", Holder: "me", Token: "7", Leading: true}
	settles := leaderelection.Status{Identity: "me", Holder: "me"}
	free := leaderelection.Status{Identity: "me"}
	with := func(s leaderelection.Status, change func(*leaderelection.Status)) leaderelection.Status {
		change(&s)
		return s
	}
	wrong := errors.New("says the API server")
	for name, test := range map[string]struct {
		before, after   leaderelection.Status
		answer          install.Answer
		err             error
		stands, settled bool
		detail          string
	}{
		"a follower is refused":   {follows, follows, install.Refused, wrong, true, true, "says the API server"},
		"a follower is admitted":  {follows, follows, install.Admitted, nil, false, true, ""},
		"a follower, not clear":   {follows, follows, install.Unclear, wrong, false, true, "says the API server"},
		"the leader is admitted":  {leads, leads, install.Admitted, nil, true, true, ""},
		"the leader is refused":   {leads, leads, install.Refused, wrong, false, true, "says the API server"},
		"the leader, not clear":   {leads, leads, install.Unclear, wrong, false, true, "says the API server"},
		"who settles is admitted": {settles, settles, install.Admitted, nil, false, false, ""},
		"who settles is refused":  {settles, settles, install.Refused, nil, true, false, ""},
		// Somebody may have taken it, or nobody: who is admitted by nobody's lock has taken it.
		"of a free lock, refused":         {free, free, install.Refused, nil, true, true, ""},
		"of a free lock, admitted":        {free, free, install.Admitted, nil, false, false, ""},
		"the term has begun meanwhile":    {settles, leads, install.Admitted, nil, true, false, ""},
		"the term has ended meanwhile":    {leads, follows, install.Refused, nil, true, false, ""},
		"another has come meanwhile":      {with(follows, func(s *leaderelection.Status) { s.Holder = "she" }), follows, install.Refused, nil, true, false, ""},
		"a further term of the same":      {with(leads, func(s *leaderelection.Status) { s.Token = "6" }), leads, install.Admitted, nil, true, false, ""},
		"leading has ended, and no more":  {leads, with(leads, func(s *leaderelection.Status) { s.Leading, s.Holder = false, "you" }), install.Refused, nil, true, false, ""},
		"leading has begun, and no more":  {with(leads, func(s *leaderelection.Status) { s.Leading = false }), leads, install.Admitted, nil, true, false, ""},
		"the phase alone does not matter": {with(follows, func(s *leaderelection.Status) { s.Phase = "x" }), follows, install.Refused, nil, true, true, ""},
	} {
		state, settled := judged(test.before, test.after, test.answer, test.err)
		want := fenceState{Stands: test.stands, Leading: test.after.Leading, Answer: test.answer.String(), Detail: test.detail}
		if settled != test.settled || !reflect.DeepEqual(state, want) {
			t.Errorf("%s: %+v, settled %v; want %+v, %v", name, state, settled, want, test.settled)
		}
		if role := map[bool]string{true: "leading", false: "following"}[test.after.Leading]; state.role() != role {
			t.Errorf("%s: the role is %s", name, state.role())
		}
	}
}

// probed is a server whose self-test's writes a test answers, by their names.
type probed struct {
	*Server
	le       *leaderelection.LeaderElection
	log      *harness.Log
	recorded *recordedEvents

	mu     sync.Mutex
	asked  []string
	answer func(name string) error
}

// tried are the names that the self-test has tried so far.
func (p *probed) tried() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// answers says what it is told from now on.
func (p *probed) answers(answer func(name string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func newProbed(t *testing.T, change func(*Config, *election)) *probed {
	t.Helper()
	p := &probed{log: &harness.Log{}, recorded: &recordedEvents{}}
	config := goodConfig()
	config.Fence = true
	config.Logger = slog.New(slog.NewTextHandler(p.log, nil))
	config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPost || r.URL.Query().Get("dryRun") != metav1.DryRunAll {
			return nil, errAway
		}
		if deadline, bounded := r.Context().Deadline(); !bounded || time.Until(deadline) > checkTimeout {
			t.Errorf("%s may take until %v", r.URL.Path, deadline)
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		var object unstructured.Unstructured
		if err := json.Unmarshal(content, &object.Object); err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.asked = append(p.asked, object.GetName())
		answer := p.answer
		p.mu.Unlock()
		err = answer(object.GetName())
		if status := new(apierrors.StatusError); errors.As(err, &status) {
			return failed(r, status)
		}
		if err != nil {
			return nil, err
		}
		return jsonAnswer(r, object.Object)
	})
	rows := newController().rows()
	change(&config, &rows[0])
	var err error
	if p.Server, err = newServer(config, rows); err != nil {
		t.Fatal(err)
	}
	p.fence.events = p.recorded
	p.le = p.elections.All()[0]
	return p
}

// refusal is what a fence says.
func refusal() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'b' denied request: b is not the leader"))
	return err
}

// sample is the value of a metric, "" for none.
func (p *probed) sample(t *testing.T, name string) string {
	t.Helper()
	_, text := get(t, p.Server, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func writesTo(names ...string) (all []fence.Guard) {
	for _, name := range names {
		all = append(all, fence.Guard{Resources: []string{"configmaps"}, Names: []string{name}})
	}
	return all
}

// Each group of guarded writes is tried and told of; the first that went wrong says what the fence
// does, or else the last.
func TestWhatSeveralGuardsSayTogether(t *testing.T) {
	refused, admitted, unclear := refusal(), error(nil), errAway
	for name, test := range map[string]struct {
		answers map[string]error
		want    fenceState
		stands  string
		guards  [3]string // the metric of each, "" for none
	}{
		"all refuse":       {map[string]error{"a": refused, "b": refused, "c": refused}, fenceState{Stands: true, Answer: "refused"}, "1", [3]string{"1", "1", "1"}},
		"one is not clear": {map[string]error{"a": refused, "b": unclear, "c": refused}, fenceState{Answer: "unclear"}, "", [3]string{"1", "", "1"}},
		"the last is not":  {map[string]error{"a": refused, "b": refused, "c": unclear}, fenceState{Answer: "unclear"}, "", [3]string{"1", "1", ""}},
		"one did not settle": {
			// Whoever is admitted while nobody holds the lock may have taken it just now.
			map[string]error{"a": refused, "b": admitted, "c": refused}, fenceState{}, "", [3]string{"1", "", "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProbed(t, func(_ *Config, row *election) {
					row.writes = append(writesTo("a", "b", "c"), fence.Guard{Resources: []string{"widgets"}, Group: "x.y", Names: []string{"w"}})
				})
				p.answers(func(name string) error { return test.answers[name] })
				began := time.Now()
				p.fence.check(t.Context(), p.le)
				tries := map[string]int{}
				for _, name := range p.tried() {
					tries[name]++
				}
				for name, answer := range test.answers {
					want := checkTries
					if errors.Is(answer, refused) {
						want = 1
					}
					if tries[name] != want {
						t.Errorf("%s was tried %d times, not %d", name, tries[name], want)
					}
				}
				again := 0
				for _, n := range tries {
					if n > 1 {
						again += n
					}
				}
				if took := time.Since(began); took != time.Duration(again)*checkPause {
					t.Errorf("it took %v", took)
				}
				got := p.fence.state(p.le)
				if (got == nil) != (test.want.Answer == "") {
					t.Fatalf("the page has %+v", got)
				}
				if got != nil && (got.Stands != test.want.Stands || got.Answer != test.want.Answer || got.Leading || got.At.Before(began) || len(got.Guards) != 3) {
					t.Errorf("the page has %+v", got)
				}
				if value := p.sample(t, fmt.Sprintf(standsSample, electionID)); value != test.stands {
					t.Errorf("incumbent_fence_stands is %q", value)
				}
				for i, guard := range []string{"a", "b", "c"} {
					key := "configmaps " + guard
					if value := p.sample(t, fmt.Sprintf("incumbent_fence_guard_stands{guard=%q,name=%q}", key, electionID)); value != test.guards[i] {
						t.Errorf("of %s it is %q, want %q", guard, value, test.guards[i])
					}
					if got == nil {
						continue
					}
					answer := map[bool]string{true: "refused", false: "unclear"}[test.guards[i] == "1"]
					if g := got.Guards[i]; g != (guardState{Guard: key, Stands: test.guards[i] == "1", Answer: answer}) {
						t.Errorf("of %s the page has %+v", guard, g)
					}
				}
				if n := p.sample(t, fmt.Sprintf(checksSample, "refused", electionID, "following")); n != fmt.Sprint(tries["a"]+map[bool]int{true: 1}[tries["b"] == 1]+map[bool]int{true: 1}[tries["c"] == 1]) {
					t.Errorf("%s checks were refused, of %v", n, tries)
				}
			})
		})
	}
}

// A metric follows its guard from one look to the next: what does not stand is 0, and what is not
// known has none.
func TestMetricsOfGuardsAreOfNow(t *testing.T) {
	p := newProbed(t, func(_ *Config, row *election) { row.writes = writesTo("a") })
	key := fmt.Sprintf("incumbent_fence_guard_stands{guard=%q,name=%q}", "g", electionID)
	for i, step := range []struct {
		state guardState
		want  string
	}{
		{guardState{Guard: "g", Stands: true, Answer: "refused"}, "1"},
		{guardState{Guard: "g", Answer: "admitted"}, "0"},
		{guardState{Guard: "g", Answer: "unclear"}, ""},
		{guardState{Guard: "g", Stands: true, Answer: "admitted"}, "1"},
		{guardState{Guard: "g"}, ""},
		{guardState{Guard: "g", Answer: "refused"}, "0"},
	} {
		p.fence.measure(p.le, []guardState{step.state})
		if got := p.sample(t, key); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// What is found is said when it is news, and once: in the log, and where the fence fell or stands
// again in Events on the lock.
func TestWhatIsSaidOfAFence(t *testing.T) {
	fell := func(leading bool, answer string) string {
		return fmt.Sprintf("the fence does not stand: a write by pilot-a, leading %v, was %s", leading, answer)
	}
	for lock, kind := range map[string]string{"configmap": "ConfigMap", "lease": "Lease", "multi": "Lease"} {
		p := newProbed(t, func(c *Config, row *election) { c.Lock, row.writes = lock, writesTo("a") })
		about := kind + " istio-system/" + electionID + " WriteFence: "
		for i, step := range []struct {
			state fenceState
			said  string // in the log
			event string
		}{
			{fenceState{Answer: "refused", Stands: true, Detail: "d"}, "level=INFO msg=\"fence stands\"", ""},
			{fenceState{Answer: "refused", Stands: true}, "", ""},
			{fenceState{Answer: "admitted", Leading: true, Stands: true}, "level=INFO msg=\"fence stands\"", ""},
			{fenceState{Answer: "admitted", Stands: false, Detail: "d"}, "level=ERROR msg=\"the fence does not stand", "Warning " + about + fell(false, "admitted")},
			{fenceState{Answer: "admitted", Stands: false}, "", ""},
			{fenceState{Answer: "refused", Stands: false, Leading: true}, "level=ERROR msg=\"the fence does not stand", "Warning " + about + fell(true, "refused")},
			{fenceState{Answer: "refused", Stands: true}, "level=INFO msg=\"fence stands\"", "Normal " + about + "the fence stands again"},
			{fenceState{Answer: "unclear", Detail: "d"}, "level=WARN msg=\"whether the fence stands is not clear\"", ""},
			{fenceState{Answer: "unclear"}, "", ""},
			{fenceState{}, "", ""},
			{fenceState{Answer: "refused", Stands: true}, "level=INFO msg=\"fence stands\"", ""}, // that it had not stood was never so
		} {
			before, events := p.log.String(), len(p.recorded.all)
			p.fence.report(p.le, step.state)
			said := strings.TrimPrefix(p.log.String(), before)
			if (step.said == "") != (said == "") || !strings.Contains(said, step.said) || strings.Count(said, "\n") > 1 ||
				said != "" && !strings.Contains(said, fmt.Sprintf("election=%s leading=%v answer=%s", electionID, step.state.Leading, step.state.Answer)) ||
				strings.Contains(said, "detail=d") != (said != "" && step.state.Detail == "d") {
				t.Errorf("%s, step %d: it says %q, want %q", lock, i, said, step.said)
			}
			if got := strings.Join(p.recorded.all[events:], "; "); got != step.event {
				t.Errorf("%s, step %d: the Event is %q, want %q", lock, i, got, step.event)
			}
			if state := p.fence.state(p.le); step.state.Answer == "" && state != nil || step.state.Answer != "" && !reflect.DeepEqual(*state, step.state) {
				t.Errorf("%s, step %d: the page has %+v", lock, i, state)
			}
		}
	}
}

// The self-test looks at its start and by its ticker, until it is told to stop, also in the midst of
// a look; without a fence, or without elections, it does not look at all.
func TestWhenTheSelfTestLooks(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no fence":     func(c *Config) { c.Fence = false },
		"no elections": func(c *Config) { c.DisableElections = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProbed(t, func(c *Config, row *election) { change(c); row.writes = writesTo("a") })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.fence.run(ctx) }()
			time.Sleep(10 * checkEvery)
			cancel()
			if err := <-ended; err != nil || len(p.tried()) > 0 || p.log.Count(`verb="watch `) > 0 {
				t.Errorf("%s: it ended with %v, and has tried %q", name, err, p.tried())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := newProbed(t, func(_ *Config, row *election) { row.writes = writesTo("a") })
		p.answers(func(string) error { return refusal() })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.fence.run(ctx) }()
		synctest.Wait()
		if len(p.tried()) != 1 {
			t.Errorf("at its start it has tried %q", p.tried())
		}
		time.Sleep(10*checkEvery + time.Second)
		if n := len(p.tried()); n != 11 {
			t.Errorf("after ten minutes it has tried %d times", n)
		}
		p.fence.wake.nudge()
		synctest.Wait()
		if n := len(p.tried()); n != 12 {
			t.Errorf("woken, it has tried %d times", n-11)
		}
		p.answers(func(string) error { return errAway }) // asked again and again, for three seconds
		p.fence.wake.nudge()
		time.Sleep(time.Second)
		began, state := time.Now(), p.fence.state(p.le)
		cancel()
		if err := <-ended; err != nil || time.Since(began) > 0 {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
		if after := p.fence.state(p.le); !reflect.DeepEqual(after, state) || after.Answer != "refused" {
			t.Errorf("a look that was cut off has left %+v", after)
		}
		if n := p.log.Count("does not answer", `verb="watch ValidatingAdmissionPolicy`); n != 1 { // of policies and bindings, which fail alike
			t.Errorf("that they cannot be watched was said %d times", n)
		}
	})
}

// The probes of an election are for the kind of lock that a fence goes by.
func TestProbesAreOfTheElection(t *testing.T) {
	for lock, want := range map[string]fence.LockKind{"configmap": fence.ConfigMap, "lease": fence.Lease, "multi": fence.Lease} {
		p := newProbed(t, func(c *Config, row *election) { c.Lock, row.writes = lock, writesTo("a", "b") })
		probes := p.fence.probes[p.le]
		names := []string{}
		for _, probe := range probes {
			names = append(names, probe.Object.GetName())
			if probe.Lock != want || probe.Namespace != "istio-system" || probe.Name != electionID {
				t.Errorf("%s: a probe is for %s %s/%s", lock, probe.Lock, probe.Namespace, probe.Name)
			}
		}
		if !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%s: tried are %q", lock, names)
		}
	}
}
