package k8sleaderelection

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// observer is an Observer and a metric that records each call as a line.
type observer struct {
	lines []string
	le    *LeaderElector
}

func (o *observer) add(format string, args ...any) {
	o.lines = append(o.lines, fmt.Sprintf(format, args...))
}

func (o *observer) Phase(name, from, to, reason string) {
	o.add("phase %s %s %s %s", name, from, to, reason)
}

func (o *observer) Call(name, verb, role, result string, took time.Duration) {
	o.add("call %s %s %s %s %v", name, verb, role, result, took)
}

func (o *observer) Term(name string, began bool, reason string) {
	o.add("term %s %v %s", name, began, reason)
}

func (o *observer) StatusChanged(name string) { o.add("status %s", name) }

func (o *observer) ObserveDuration(name string, what Interval, took time.Duration) {
	o.add("duration %s %s %v", name, what, took)
}

func (o *observer) On(name string)                { o.add("on %s", name) }
func (o *observer) Off(name string)               { o.add("off %s", name) }
func (o *observer) SlowpathExercised(name string) { o.add("slow path %s", name) }

func (o *observer) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	if o.le.hooks.Wait(harness.Patience); !slices.Equal(o.lines, want) {
		t.Errorf("%s: %q, want %q", what, o.lines, want)
	}
	o.lines = nil
}

// switchOnly hides SlowpathExercised.
type switchOnly struct{ SwitchMetric }

// entries is the log of an elector. Its methods wait until all entries are written.
type entries struct {
	written bytes.Buffer
	le      *LeaderElector
}

func (e *entries) Write(p []byte) (int, error) { return e.written.Write(p) }

func (e *entries) String() string {
	e.le.hooks.Wait(harness.Patience)
	return e.written.String()
}

func (e *entries) Reset() {
	e.le.hooks.Wait(harness.Patience)
	e.written.Reset()
}

// reporting returns the reporter of an elector that does not run, with its observer and its log.
func reporting(t *testing.T, change ...func(*LeaderElectionConfig)) (*reporter, *observer, *entries) {
	t.Helper()
	o := &observer{}
	log := &entries{}
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, append(change, func(c *LeaderElectionConfig) {
		c.Name = "e"
		c.Observer = o
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})...)
	l.le.hooks.Wait(harness.Patience)
	l.le.metric = func() SwitchMetric { return o }
	o.le = l.le
	log.le = l.le
	return l.report, o, log
}

func TestReportPhase(t *testing.T) {
	r, o, log := reporting(t)
	r.claim = core.Nominated
	r.pass(&change{published: true, before: core.State{Phase: core.Settling}, after: core.State{Phase: core.Leading, Why: "why", Leadership: core.Leadership{Running: true}}})
	o.wants(t, "leading", "phase e settling leading why", "term e true nominated", "on e", "status e")
	if strings.Count(log.String(), "claim=nominated") != 1 {
		t.Errorf("log %s", log)
	}
	for name, c := range map[string]struct {
		lost    core.Loss
		failure error
	}{"validity lost": {core.ValidityLost, nil}, "record lost": {core.RecordLost, nil}, "failed function": {core.NotLost, errors.New("x")}, "stopped": {}} {
		r.on = true
		r.term(&core.State{Phase: core.Draining, Why: "why", Leadership: core.Leadership{Drain: core.Drain{Lost: c.lost}}}, c.failure)
		o.wants(t, name, "term e false why")
		r.term(&core.State{Phase: core.Following}, nil)
		o.wants(t, name+", following")
	}
}

// Each change of the status sets the metric, because the report of the term may have been dropped.
func TestReportMetric(t *testing.T) {
	r, o, _ := reporting(t)
	for _, x := range []struct {
		on   bool
		want []string
	}{
		{false, []string{"status e"}}, {true, []string{"on e", "status e"}}, {true, []string{"status e"}}, {false, []string{"off e", "status e"}},
	} {
		r.on = x.on
		r.status()
		o.wants(t, fmt.Sprintf("leads %v", x.on), x.want...)
	}
}

func TestReportCall(t *testing.T) {
	r, o, log := reporting(t)
	r.answered(core.Leading, call{op: core.Renew, result: core.Unknown, err: errors.New("away"), took: 3 * time.Second})
	o.wants(t, "failure", "call e renew leading unknown 3s")
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("after a failure: %s", log)
	}
	r.answered(core.Leading, call{op: core.Renew, result: core.OK, took: time.Second})
	o.wants(t, "success", "call e renew leading ok 1s", "slow path e")
	if strings.Count(log.String(), `msg="requests for the lock succeed again"`) != 1 {
		t.Errorf("after a success: %s", log)
	}
	r.answered(core.Following, call{op: core.Acquire, result: core.Conflict})
	o.wants(t, "conflict", "call e acquire following conflict 0s")
}

// SlowpathExercised counts each renewal that needed another attempt. A new term begins without one.
func TestReportSlowpath(t *testing.T) {
	r, o, _ := reporting(t)
	r.le.config.Observer = nil
	replies := func(calls ...call) []string {
		o.lines = nil
		for _, c := range calls {
			r.answered(core.Leading, c)
		}
		r.le.hooks.Wait(harness.Patience)
		return o.lines
	}
	renewed, conflict := call{op: core.Renew, result: core.OK}, call{op: core.Renew, result: core.Conflict}
	read, acquired := call{op: core.Read, result: core.OK}, call{op: core.Acquire, result: core.OK}
	if got := replies(renewed, conflict, read, conflict, renewed, renewed); !slices.Equal(got, []string{"slow path e"}) {
		t.Errorf("one renewal after two conflicts: %q", got)
	}
	if got := replies(conflict, acquired, renewed); got != nil {
		t.Errorf("a renewal of the next term: %q", got)
	}
	r.le.metric = func() SwitchMetric { return switchOnly{o} }
	if got := replies(conflict, renewed); got != nil {
		t.Errorf("without SlowpathMetric: %q", got)
	}
}

// A follower has the metric from its creation on, as in client-go.
func TestNewLeaderElector_Metric(t *testing.T) {
	o := &observer{}
	SetProvider(providerOf{o})
	defer SetProvider(nil)
	idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) { c.Name = "e" })
	if !slices.Equal(o.lines, []string{"off e"}) {
		t.Errorf("calls for a new elector: %q", o.lines)
	}
}

// A stuck drain and a duplicate identity are reported once, not in each pass.
func TestReportOnce(t *testing.T) {
	stuck := 0
	r, _, log := reporting(t, func(c *LeaderElectionConfig) { c.OnStuckDrain = func() { stuck++ } })
	before := core.State{Phase: core.Draining, Leadership: core.Leadership{Running: true}}
	for i := range 3 {
		after := before
		after.Drain.Overdue = true
		after.Own.Duplicate = true
		after.Learned = uint32(i + 1)
		r.pass(&change{before: before, after: after})
		before = after
	}
	for _, err := range []error{errors.New("cold"), errors.New("cold"), nil, nil} {
		r.fitness(err)
	}
	for _, line := range []string{
		"run functions did not return within their limit", "another live process uses this identity",
		`msg="unfit to lead; a follower does not campaign`, `msg="fit to lead again"`,
	} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q logged %d times:\n%s", line, n, log)
		}
	}
	if stuck != 1 {
		t.Errorf("OnStuckDrain calls: %d", stuck)
	}
}

func TestReportRecord(t *testing.T) {
	r, _, log := reporting(t)
	see := func(content core.Content, lease time.Duration, lock k8sresourcelock.Snapshot) string {
		log.Reset()
		for range 2 {
			s := core.State{Sight: core.Sight{Learned: 1, Snap: core.Snapshot{Exists: true, Content: content, Record: core.Record{Holder: "x", Lease: lease}}}}
			r.record(&change{after: s, lock: lock})
		}
		return log.String()
	}
	long := 10 * r.core.Lease // the longest without a report
	marked := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "istio-system", Name: "work", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"argocd.argoproj.io/hook-finalizer"},
	}}
	unversioned := k8sresourcelock.Snapshot{Exists: true, Object: &coordinationv1.Lease{}}
	for _, c := range []struct {
		content core.Content
		lease   time.Duration
		lock    k8sresourcelock.Snapshot
		want    string
	}{
		{record.Readable, long, k8sresourcelock.Snapshot{}, ""},
		{record.Readable, long, unversioned, "lock has no resource versions"},
		{record.Unreadable, 0, k8sresourcelock.Snapshot{Unreadable: errors.New("half")}, "lock record is unreadable"},
		{record.Unreadable, 0, k8sresourcelock.Snapshot{Unreadable: errors.New("other half")}, "other half"},
		{record.Readable, long, k8sresourcelock.Snapshot{}, "lock record is readable again"},
		{record.Readable, long + 1, k8sresourcelock.Snapshot{ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:leaseDurationSeconds":{}}}`)},
		}}, fmt.Sprintf("field=leaseDurationSeconds recorded=%v counted=%v writer=kubectl holder=x", long+1, long+1)},
		{record.Readable, 100 * time.Hour, k8sresourcelock.Snapshot{}, fmt.Sprintf("recorded=%v counted=%v", 100*time.Hour, record.LeaseBound(r.core.Lease))},
		{record.Readable, long, k8sresourcelock.Snapshot{}, "lock record is readable again"},
		{record.Readable, long, k8sresourcelock.Snapshot{ResourceVersion: "1", Object: marked}, `command="kubectl -n istio-system patch lease work --type=merge -p '{\"metadata\":{\"finalizers\":null}}'"`},
		{record.Readable, long, k8sresourcelock.Snapshot{ResourceVersion: "2", Object: &coordinationv1.Lease{}}, "lock is not being deleted any more"},
	} {
		lines := 1
		if c.want == "" {
			lines = 0
		}
		if got := see(c.content, c.lease, c.lock); strings.Count(got, "\n") != lines || !strings.Contains(got, c.want) {
			t.Errorf("log %q, want once %q", got, c.want)
		}
	}
}

// A conflict is reported as a failure if the core counts it as one.
func TestReportDenied(t *testing.T) {
	for name, c := range map[string]struct {
		kind         core.Kind
		result       core.Result
		writes, asks [2]uint8 // failures before and after
		want         bool
	}{
		"write":               {core.Replied, core.Conflict, [2]uint8{1, 2}, [2]uint8{}, true},
		"request":             {core.Replied, core.Conflict, [2]uint8{2, 0}, [2]uint8{0, 1}, true},
		"not counted":         {core.Replied, core.Conflict, [2]uint8{1, 1}, [2]uint8{1, 1}, false},
		"end of the failures": {core.Replied, core.Conflict, [2]uint8{2, 0}, [2]uint8{2, 0}, false},
		"refused":             {core.Replied, core.Refused, [2]uint8{1, 2}, [2]uint8{}, false},
		"watch event":         {core.Seen, core.Conflict, [2]uint8{1, 2}, [2]uint8{}, false},
	} {
		change := &change{in: core.Input{Kind: c.kind, Result: c.result}}
		change.before.Effort.Writes.Fails = c.writes[0]
		change.after.Effort.Writes.Fails = c.writes[1]
		change.before.Effort.Requests.Fails = c.asks[0]
		change.after.Effort.Requests.Fails = c.asks[1]
		if change.denied() != c.want {
			t.Errorf("%s: denied %v", name, !c.want)
		}
	}
}

func TestBrief(t *testing.T) {
	fits := strings.Repeat("x", maxBrief)
	for text, want := range map[string]string{fits: fits, fits + "x": fits + "…", "two\n lines": "two lines", strings.Repeat("ä", maxBrief): strings.Repeat("ä", maxBrief/2) + "…"} {
		if got := brief(errors.New(text)); got != want {
			t.Errorf("%d bytes of %d: %s", len(got), len(text), got)
		}
	}
}

func TestShowRecord(t *testing.T) {
	const until = core.Instant(time.Hour)
	marker := func(identity string, transitions int, handover bool) core.Annotations {
		return core.Annotations{Marker: core.Marker{Identity: identity, Transitions: transitions, Handover: handover}}
	}
	for name, c := range map[string]struct {
		annotations core.Annotations
		actsUntil   core.Instant
	}{
		"peer":                     {core.Annotations{}, until},
		"marker":                   {marker("x", 4, true), until},
		"marker without handover":  {marker("x", 4, false), until},
		"marker of another holder": {marker("y", 3, true), 0},
		"marker of another term":   {marker("x", 3, true), 0},
	} {
		s := core.State{Sight: core.Sight{Snap: core.Snapshot{
			Exists: true, Content: record.Readable, Annotations: c.annotations,
			Record: core.Record{Holder: "x", Key: "k", Lease: time.Minute, Transitions: 4, Acquired: 1, Renewed: 2},
		}}}
		want := view{actsUntil: c.actsUntil, status: Status{Holder: "x", HolderKey: "k", Transitions: 4}}
		var got view
		if got.showRecord(&s, until); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestSetProvider(t *testing.T) {
	o := &observer{}
	SetProvider(providerOf{o})
	defer SetProvider(nil)
	if got := newLeaderMetric(); got != SwitchMetric(o) {
		t.Errorf("metric %v", got)
	}
	SetProvider(nil)
	if got := newLeaderMetric(); got != (noMetric{}) {
		t.Errorf("metric %v without a provider", got)
	}
}

type providerOf struct{ metric SwitchMetric }

func (p providerOf) NewLeaderMetric() SwitchMetric { return p.metric }
