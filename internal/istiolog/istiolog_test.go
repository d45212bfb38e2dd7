package istiolog

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	istiolog "istio.io/pkg/log"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// configureLog writes Istio's log as JSON to a file. The returned function reads its lines.
func configureLog(t *testing.T, level istiolog.Level) func() (lines []map[string]any) {
	t.Helper()
	New()
	file := filepath.Join(t.TempDir(), "log")
	options := istiolog.DefaultOptions()
	options.OutputPaths = []string{file}
	options.JSONEncoding = true
	options.SetOutputLevel("pilot", level)
	harness.Must(t, istiolog.Configure(options))
	t.Cleanup(func() { _ = istiolog.Configure(istiolog.DefaultOptions()) })
	return func() (lines []map[string]any) {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		for text := range strings.Lines(string(text)) {
			var line map[string]any
			harness.Must(t, json.Unmarshal([]byte(text), &line))
			lines = append(lines, line)
		}
		return lines
	}
}

func TestLevels(t *testing.T) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	names := []string{"debug", "info", "warn", "error"}
	for lowest, level := range []istiolog.Level{istiolog.DebugLevel, istiolog.InfoLevel, istiolog.WarnLevel, istiolog.ErrorLevel, istiolog.NoneLevel} {
		lines := configureLog(t, level)
		log := New()
		var want, got []string
		for i, l := range levels {
			if enabled := log.Enabled(t.Context(), l); enabled != (i >= lowest) {
				t.Errorf("at %v, %s is enabled: %v", level, names[i], enabled)
			}
			if i >= lowest {
				want = append(want, names[i], names[i])
			}
			log.Log(t.Context(), l, "message")
			log.Log(t.Context(), l+1, "message") // a level between two counts as the lower one
		}
		for _, line := range lines() {
			got = append(got, line["level"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %v: logged %q, want %q", level, got, want)
		}
	}
}

type logValuer struct{}

func (logValuer) LogValue() slog.Value { return slog.StringValue("resolved") }

func TestAttributes(t *testing.T) {
	lines := configureLog(t, istiolog.InfoLevel)
	parent := New().With("a", 1)
	child := parent.With("b", uint64(2)).WithGroup("").WithGroup("g").WithGroup("h").With("c", true)
	sibling := parent.With("b", "other")
	child.Info("child", slog.Group("k", "d", 1.5, slog.Group("", "e", "inline")), slog.Attr{}, "f", logValuer{}, "list", []string{"x", "y"}, "ints", []int{1}, "nil", nil,
		"at", time.Unix(0, 0).UTC(), "for", 3*time.Second, "error", errors.New("no"))
	sibling.Info("sibling")
	parent.Info("parent")
	want := []map[string]any{
		{
			"msg": "child", "a": 1.0, "b": 2.0, "g.h.c": true, "g.h.k.d": 1.5, "g.h.k.e": "inline", "g.h.f": "resolved", "g.h.list": []any{"x", "y"},
			"g.h.ints": "[1]", "g.h.nil": "<nil>", "g.h.at": "1970-01-01 00:00:00 +0000 UTC", "g.h.for": "3s", "g.h.error": "no",
		},
		{"msg": "sibling", "a": 1.0, "b": "other"},
		{"msg": "parent", "a": 1.0},
	}
	got := lines()
	if len(got) != len(want) {
		t.Fatalf("%d lines: %v", len(got), got)
	}
	for i, line := range got {
		if line["scope"] != "pilot" {
			t.Errorf("line %d has scope %v", i, line["scope"])
		}
		for _, key := range []string{"level", "time", "scope"} {
			delete(line, key)
		}
		text, _ := json.Marshal(line)
		wanted, _ := json.Marshal(want[i])
		if string(text) != string(wanted) {
			t.Errorf("line %d is %s\nwant %s", i, text, wanted)
		}
	}
}

func TestAttributes_NotSharedBetweenLoggers(t *testing.T) {
	var h slog.Handler = handler{}
	h = h.WithAttrs([]slog.Attr{slog.Int("a", 1), slog.Int("b", 2), slog.Int("c", 3)})
	one := h.WithAttrs([]slog.Attr{slog.Int("d", 4)}).(handler)
	other := h.WithAttrs([]slog.Attr{slog.Int("d", 5)}).(handler)
	if one.labels[7] != int64(4) || other.labels[7] != int64(5) || len(h.(handler).labels) != 6 {
		t.Errorf("%v and %v", one.labels, other.labels)
	}
}
