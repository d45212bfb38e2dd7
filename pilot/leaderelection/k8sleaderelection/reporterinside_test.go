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

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// listener is an observer and a metric that notes each word.
type listener struct{ lines []string }

func (l *listener) note(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *listener) Phase(name, from, to, reason string) {
	l.note("phase %s %s %s %s", name, from, to, reason)
}

func (l *listener) Call(name, verb, role, result string, took time.Duration) {
	l.note("call %s %s %s %s %v", name, verb, role, result, took)
}

func (l *listener) Term(name string, began bool, reason string) {
	l.note("term %s %v %s", name, began, reason)
}

func (*listener) StatusChanged(string) {}

func (l *listener) ObserveDuration(name string, what Interval, took time.Duration) {
	l.note("lasted %s %s %v", name, what, took)
}
func (l *listener) On(name string)                { l.note("on %s", name) }
func (l *listener) Off(name string)               { l.note("off %s", name) }
func (l *listener) SlowpathExercised(name string) { l.note("slow path %s", name) }

func (l *listener) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(l.lines, want) {
		t.Errorf("%s: told %q, want %q", what, l.lines, want)
	}
	l.lines = nil
}

// tolerant is a metric that counts no slow paths.
type tolerant struct{ SwitchMetric }

// reporting is the reporter of an elector that does not run, with what it tells and writes.
func reporting(t *testing.T, change ...func(*LeaderElectionConfig)) (*reporter, *listener, *bytes.Buffer) {
	t.Helper()
	heard, log := &listener{}, &bytes.Buffer{}
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, append(change, func(c *LeaderElectionConfig) {
		c.Name, c.Observer, c.Logger = "e", heard, slog.New(slog.NewTextHandler(log, nil))
	})...)
	l.report.metric = heard
	return l.report, heard, log
}

func TestWhatAPhaseAndATermTell(t *testing.T) {
	r, heard, _ := reporting(t)
	r.claim = core.Nominated
	r.pass(&change{before: core.State{Phase: core.Settling}, after: core.State{Phase: core.Leading, Why: "why", Running: true}})
	heard.wants(t, "it leads", "phase e settling leading why", "on e", "term e true nominated")
	for what, c := range map[string]struct {
		lost    core.Loss
		failure error
	}{"it lost its cover": {core.ValidityLost, nil}, "it lost the record": {core.RecordLost, nil}, "a function failed": {core.NotLost, errors.New("x")}, "it was stopped": {}} {
		r.term(&core.State{Phase: core.Leading}, nil)
		heard.lines = nil
		r.term(&core.State{Phase: core.Draining, Why: "why", Drain: core.Drain{Lost: c.lost}}, c.failure)
		heard.wants(t, what, "off e", "term e false why")
		r.term(&core.State{Phase: core.Following}, nil)
		heard.wants(t, "and follows")
	}
}

func TestWhatACallTells(t *testing.T) {
	r, heard, log := reporting(t)
	r.answered(core.Leading, call{op: core.Renew, result: core.Unknown, err: errors.New("away"), took: 3 * time.Second})
	heard.wants(t, "a call that failed", "call e renew leading unknown 3s")
	if !strings.Contains(log.String(), "a call for the lock failed") || strings.Contains(log.String(), "answers again") {
		t.Errorf("a call failed: %s", log)
	}
	r.answered(core.Leading, call{op: core.Renew, result: core.OK, took: time.Second})
	heard.wants(t, "a call", "call e renew leading ok 1s")
	if strings.Count(log.String(), `msg="the lock's API server answers again"`) != 1 {
		t.Errorf("the next was answered: %s", log)
	}
	r.answered(core.Following, call{op: core.Acquire, result: core.Conflict})
	heard.wants(t, "a conflict", "call e acquire following conflict 0s", "slow path e")
	r.metric = tolerant{heard}
	r.answered(core.Following, call{op: core.Acquire, result: core.Conflict})
	heard.wants(t, "a conflict without a metric for it", "call e acquire following conflict 0s")
}

func TestFitnessIsToldOnceEachTime(t *testing.T) {
	r, _, log := reporting(t)
	for _, err := range []error{errors.New("cold"), errors.New("cold"), nil, nil} {
		r.fitness(err)
	}
	for _, line := range []string{"unfit to lead: a follower does not campaign", `msg="fit to lead again"`} {
		if strings.Count(log.String(), line) != 1 {
			t.Errorf("want %q once:\n%s", line, log)
		}
	}
}

// An outstayed limit and a process of the same name are told when they begin, and not in each pass.
func TestWhatLastsIsToldOnce(t *testing.T) {
	stuck := 0
	r, _, log := reporting(t, func(c *LeaderElectionConfig) { c.OnStuckDrain = func() { stuck++ } })
	before := core.State{Phase: core.Draining, Running: true}
	for i := range 3 {
		after := before
		after.Drain.Overdue, after.Own.Duplicate, after.Learned = true, true, uint32(i+1)
		r.pass(&change{before: before, after: after})
		before = after
	}
	if n := strings.Count(log.String(), "outstayed the drain limit"); n != 1 || stuck != 1 {
		t.Errorf("an overdue drain is told %d times, %d times to the function", n, stuck)
	}
	if n := strings.Count(log.String(), "another live process uses this identity"); n != 1 {
		t.Errorf("a twin is told %d times", n)
	}
}

func TestWhatARecordTells(t *testing.T) {
	r, _, log := reporting(t)
	see := func(record core.Record, lock k8sresourcelock.Snapshot) {
		s := core.State{Learned: 1, Snap: core.Snapshot{Exists: true, Content: core.Readable, Record: record}}
		r.record(&change{after: s, lock: lock})
	}
	made := k8sresourcelock.Snapshot{Exists: true, Object: &coordinationv1.Lease{}}
	for range 2 {
		see(core.Record{Holder: "x", Lease: 30 * time.Second}, made)
	}
	if strings.Count(log.String(), "keeps no versions, as client-go's fake clientset") != 1 {
		t.Errorf("a store without versions: %s", log)
	}
	bound := r.core.LeaseBound()
	see(core.Record{Holder: "x", Lease: bound}, k8sresourcelock.Snapshot{})
	if strings.Contains(log.String(), "absurd") {
		t.Errorf("a lease at the bound: %s", log)
	}
	see(core.Record{Holder: "x", Lease: 100 * time.Hour}, k8sresourcelock.Snapshot{})
	if want := fmt.Sprintf("recorded=%v counted=%v holder=x", 100*time.Hour, bound); !strings.Contains(log.String(), want) {
		t.Errorf("an absurd lease: %s, want %s", log, want)
	}
}

func TestWhatIsAcknowledged(t *testing.T) {
	flight := core.State{Flight: core.Call{Op: core.Renew, Base: 7}}
	reply := core.Input{Kind: core.Replied, Result: core.OK, Snap: core.Snapshot{Version: 8}}
	for what, c := range map[string]struct {
		change func(*core.Input)
		want   core.Op
	}{
		"a write":             {func(*core.Input) {}, core.Renew},
		"a watch's event":     {func(in *core.Input) { in.Kind = core.Seen }, core.NoOp},
		"a refusal":           {func(in *core.Input) { in.Result = core.Refused }, core.NoOp},
		"what changed naught": {func(in *core.Input) { in.Snap.Version = 7 }, core.NoOp},
	} {
		in := reply
		c.change(&in)
		if got := (&change{in: in, before: flight}).acknowledged(); got != c.want {
			t.Errorf("%s acknowledges %v, want %v", what, got, c.want)
		}
	}
}

// A conflict is reported as a failure when the core has counted it as one, of a write or of a request.
func TestWhatCountsAsDenied(t *testing.T) {
	for what, x := range map[string]struct {
		kind                       core.Kind
		result                     core.Result
		writes, asks, after, asked uint8
		want                       bool
	}{
		"a write that met nobody":     {core.Replied, core.Conflict, 1, 0, 2, 0, true},
		"a request that met nobody":   {core.Replied, core.Conflict, 0, 1, 0, 2, true},
		"one that met somebody":       {core.Replied, core.Conflict, 1, 1, 1, 1, false},
		"one that met the end of it":  {core.Replied, core.Conflict, 2, 2, 0, 0, false},
		"another failure":             {core.Replied, core.Refused, 1, 0, 2, 0, false},
		"a watch's event on the way":  {core.Seen, core.Conflict, 1, 0, 2, 0, false},
		"a request's, writes succeed": {core.Replied, core.Conflict, 2, 0, 0, 1, true},
	} {
		c := &change{in: core.Input{Kind: x.kind, Result: x.result}}
		c.before.Effort.Writes.Fails, c.before.Effort.Requests.Fails = x.writes, x.asks
		c.after.Effort.Writes.Fails, c.after.Effort.Requests.Fails = x.after, x.asked
		if c.denied() != x.want {
			t.Errorf("%s: denied %v", what, !x.want)
		}
	}
}

// An error that just fits into an Event is told whole.
func TestAnErrorThatFitsIsWhole(t *testing.T) {
	fits := strings.Repeat("x", maxBrief)
	if got := brief(errors.New(fits)); got != fits {
		t.Errorf("%d bytes of %d: %s", len(got), len(fits), got)
	}
	if got := brief(errors.New(fits + "x")); got != fits+"…" {
		t.Errorf("one more: %s", got)
	}
}

func TestRevisionKeys(t *testing.T) {
	for _, c := range []struct {
		revision string
		remote   bool
		want     string
	}{{"canary", false, "canary"}, {"canary", true, "^canary"}, {"", false, "default"}, {"", true, "^default"}} {
		if got := RevisionKey(c.revision, c.remote); got != c.want {
			t.Errorf("of %+v: %s", c, got)
		}
	}
}
