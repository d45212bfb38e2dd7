package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	istiolog "istio.io/pkg/log"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// described is what a metric says of itself.
type described struct {
	help, labels string
	bounds       []float64
}

// A process that takes part, is warm and is fit could lead.
func TestWhoCouldLead(t *testing.T) {
	for now, want := range map[leaderelection.Status]float64{
		{Running: true, Warm: true}: 1, {Running: true}: 0, {Warm: true}: 0, {Running: true, Warm: true, Unfit: true}: 0,
	} {
		if got := could(now); got != want {
			t.Errorf("%+v: %v", now, got)
		}
	}
}

// everyMetric has all metrics of a server show something.
func everyMetric(t *testing.T) map[string]described {
	t.Helper()
	config := goodConfig()
	config.Fence = true
	config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
		return failed(r, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'b' denied request: not the leader")))
	})
	rows := newController().rows()
	rows[0].writes = []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}}
	s, err := newServer(config, rows)
	if err != nil {
		t.Fatal(err)
	}
	m := s.metrics
	m.Phase("x", "a", "b", "why")
	m.Term("x", true, "why")
	m.Call("x", "renew", "leading", "ok", time.Second)
	m.Call("x", "renew", "leading", "conflict", time.Second)
	for what := range m.durations {
		m.ObserveDuration("x", what, time.Second)
	}
	m.ObserveDuration("x", k8sleaderelection.Interval("later"), time.Second) // of which a later elector tells
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.fence.Run(ctx) }()
	await(t, "the fence was tested", func() bool { return s.fence.State(electionID) != nil })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	m.unknown.WithLabelValues("x").Set(1)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]described{}
	for _, f := range families {
		d, first := described{help: f.GetHelp()}, f.GetMetric()[0]
		var names []string
		for _, label := range first.GetLabel() {
			names = append(names, label.GetName())
		}
		for _, b := range first.GetHistogram().GetBucket() {
			d.bounds = append(d.bounds, b.GetUpperBound())
		}
		d.labels = strings.Join(names, " ")
		all[f.GetName()] = d
	}
	return all
}

// Every metric says what it is, by which labels, and how fine its buckets are.
func TestEveryMetricIsDescribed(t *testing.T) {
	labels := map[string]string{
		"incumbent_build_info": "goversion modified platform revision version", "leader_election_master_status": "name",
		"leader_election_slowpath_total": "name", "incumbent_election_phase_changes_total": "from name reason to",
		"incumbent_election_transitions_total": "change name reason", "incumbent_election_requests_total": "name result role verb",
		"incumbent_election_request_seconds": "name verb", "incumbent_election_renew_seconds": "name",
		"incumbent_election_drain_seconds": "name", "incumbent_election_handover_seconds": "name",
		"incumbent_election_handover_given_seconds": "name", "incumbent_election_leaderless_seconds": "name",
		"incumbent_election_cover_left_seconds": "name", "incumbent_election_term_transitions": "name",
		"incumbent_election_admitted_writes_total": "name", "incumbent_election_refused_writes_total": "by name",
		"incumbent_fence_in_effect": "name", "incumbent_fence_guard_in_effect": "guard name", "incumbent_fence_checks_total": "answer name role",
		"incumbent_election_other_lock_held": "name", "incumbent_election_cover_seconds": "name", "incumbent_election_candidate": "name revision",
		"incumbent_election_handover_wait_seconds": "name", "incumbent_election_definitions_missing": "name",
	}
	buckets := map[string][]float64{
		"_request_seconds": {.002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10},
		"_renew_seconds":   {.002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10},
		"":                 {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300},
	}
	gauges := map[string]bool{
		"incumbent_election_cover_left_seconds": true, "incumbent_election_cover_seconds": true, "incumbent_election_handover_wait_seconds": true,
	}
	all := everyMetric(t)
	for name, d := range all {
		want, ours := labels[name]
		if !ours && (strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")) {
			continue
		}
		if len(d.help) < 20 || d.labels != want {
			t.Errorf("%s has the labels %q, not %q: dashboards go by them. It says %q", name, d.labels, want, d.help)
		}
		fine := buckets[""]
		for end := range buckets {
			if end != "" && strings.HasSuffix(name, end) {
				fine = buckets[end]
			}
		}
		if len(d.bounds) > 0 && !slices.Equal(d.bounds, fine) || len(d.bounds) == 0 && strings.HasSuffix(name, "_seconds") && !gauges[name] {
			t.Errorf("%s has the buckets %v", name, d.bounds)
		}
		delete(labels, name)
	}
	if len(labels) > 0 {
		t.Errorf("these are not shown: %v", labels)
	}
	for _, other := range []string{"go_goroutines", "process_open_fds"} {
		if all[other].help == "" {
			t.Errorf("no %s", other)
		}
	}
}

// logsTo has Istio's log written to a file as JSON, and returns what it has.
func logsTo(t *testing.T, level istiolog.Level) func() (lines []map[string]any) {
	t.Helper()
	NewLogger()
	file := filepath.Join(t.TempDir(), "log")
	options := istiolog.DefaultOptions()
	options.OutputPaths, options.JSONEncoding = []string{file}, true
	options.SetOutputLevel("pilot", level)
	if err := istiolog.Configure(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = istiolog.Configure(istiolog.DefaultOptions()) })
	return func() (lines []map[string]any) {
		for text := range strings.Lines(readFile(t, file)) {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		return lines
	}
}

// Each level of a record is one of the log's, and what is below the log's level is not written
// and known not to be.
func TestLevelsOfTheLog(t *testing.T) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	names := []string{"debug", "info", "warn", "error"}
	for at, level := range []istiolog.Level{istiolog.DebugLevel, istiolog.InfoLevel, istiolog.WarnLevel, istiolog.ErrorLevel, istiolog.NoneLevel} {
		written, log := logsTo(t, level), NewLogger()
		var want, got []string
		for i, l := range levels {
			if enabled := log.Enabled(t.Context(), l); enabled != (i >= at) {
				t.Errorf("at %v, %s is on: %v", level, names[i], enabled)
			}
			if i >= at {
				want = append(want, names[i])
			}
			log.Log(t.Context(), l, "said")
			log.Log(t.Context(), l+1, "said") // between two levels is as the lower one
		}
		for _, line := range written() {
			got = append(got, line["level"].(string))
		}
		var twice []string
		for _, name := range want {
			twice = append(twice, name, name)
		}
		if !slices.Equal(got, twice) {
			t.Errorf("at %v: %q are written, not %q", level, got, twice)
		}
	}
}

// resolved is a value that is known when it is written.
type resolved struct{}

func (resolved) LogValue() slog.Value { return slog.StringValue("now") }

// What records carry is written under its name, those of groups too; what is said to one logger
// is not said by its parent.
func TestAttributesOfTheLog(t *testing.T) {
	written := logsTo(t, istiolog.InfoLevel)
	parent := NewLogger().With("a", 1)
	child := parent.With("b", uint64(2)).WithGroup("").WithGroup("g").WithGroup("h").With("c", true)
	sibling := parent.With("b", "other")
	child.Info("child", slog.Group("k", "d", 1.5, slog.Group("", "e", "inline")), slog.Attr{}, "f", resolved{}, "list", []string{"x", "y"}, "ints", []int{1}, "nil", nil,
		"at", time.Unix(0, 0).UTC(), "for", 3*time.Second, "error", errors.New("no"))
	sibling.Info("sibling")
	parent.Info("parent")
	want := []map[string]any{
		{
			"msg": "child", "a": 1.0, "b": 2.0, "g.h.c": true, "g.h.k.d": 1.5, "g.h.k.e": "inline", "g.h.f": "now", "g.h.list": []any{"x", "y"},
			"g.h.ints": "[1]", "g.h.nil": "<nil>", "g.h.at": "1970-01-01 00:00:00 +0000 UTC", "g.h.for": "3s", "g.h.error": "no",
		},
		{"msg": "sibling", "a": 1.0, "b": "other"},
		{"msg": "parent", "a": 1.0},
	}
	lines := written()
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, line := range lines {
		for _, known := range []string{"level", "time", "scope"} {
			delete(line, known)
		}
		got, _ := json.Marshal(line)
		wanted, _ := json.Marshal(want[i])
		if string(got) != string(wanted) {
			t.Errorf("line %d is %s\nwant %s", i, got, wanted)
		}
	}
}

// A logger that has many children from many goroutines is written by none of them.
func TestLoggersOfOneParentDoNotMix(t *testing.T) {
	var b slog.Handler = bridge{}
	b = b.WithAttrs([]slog.Attr{slog.Int("a", 1), slog.Int("b", 2), slog.Int("c", 3)})
	one, other := b.WithAttrs([]slog.Attr{slog.Int("d", 4)}).(bridge), b.WithAttrs([]slog.Attr{slog.Int("d", 5)}).(bridge)
	if one.labels[7] != int64(4) || other.labels[7] != int64(5) || len(b.(bridge).labels) != 6 {
		t.Errorf("%v and %v", one.labels, other.labels)
	}
}
