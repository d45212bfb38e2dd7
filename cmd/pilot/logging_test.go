package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"istio.io/pkg/log"

	"incumbent.dev/incumbent/internal/istiolog"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// --log-level: what names no scope is for all, wherever it stands; what names one is for it
// alone; of two for the same, the last counts.
func TestLogLevels(t *testing.T) {
	const own, other = "pilot", "default"
	t.Cleanup(func() {
		if err := (&logging{level: "info", target: []string{"stdout"}}).configure(); err != nil {
			t.Error(err)
		}
	})
	for level, want := range map[string][2]log.Level{
		"debug":                        {log.DebugLevel, log.DebugLevel},
		"info":                         {log.InfoLevel, log.InfoLevel},
		"warn":                         {log.WarnLevel, log.WarnLevel},
		"error":                        {log.ErrorLevel, log.ErrorLevel},
		"none":                         {log.NoneLevel, log.NoneLevel},
		"warn,pilot:debug":             {log.DebugLevel, log.WarnLevel},
		"pilot:debug,warn":             {log.DebugLevel, log.WarnLevel},
		"pilot:error":                  {log.ErrorLevel, log.InfoLevel},
		"default:error,debug":          {log.DebugLevel, log.ErrorLevel},
		"warn,error":                   {log.ErrorLevel, log.ErrorLevel},
		"pilot:debug,pilot:error":      {log.ErrorLevel, log.InfoLevel},
		"pilot:error,warn,pilot:debug": {log.DebugLevel, log.WarnLevel},
	} {
		if err := (&logging{level: level, target: []string{"stdout"}}).configure(); err != nil {
			t.Errorf("%s: %v", level, err)
			continue
		}
		for i, scope := range []string{own, other} {
			if got := log.FindScope(scope).GetOutputLevel(); got != want[i] {
				t.Errorf("--log-level=%s: that of %s is %v, want %v", level, scope, got, want[i])
			}
		}
	}
}

func TestWrongLogLevelsNameWhatThereIs(t *testing.T) {
	for level, words := range map[string][]string{
		"loud":         {"--log-level=loud", "debug, info, warn, error, none"},
		"pilot:":       {`"" is none of`},
		"nobody:debug": {`no scope "nobody"`, "default, ", "pilot"},
	} {
		err := (&logging{level: level, target: []string{"stdout"}}).configure()
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("--log-level=%s: %v does not say %q", level, err, word)
			}
		}
	}
}

// What the flags of the log do to a server's lines.
func TestLogFlagsHaveTheirEffect(t *testing.T) {
	clearVariables(t)
	t.Cleanup(func() {
		if err := (&logging{level: "info", target: []string{"stdout"}}).configure(); err != nil {
			t.Error(err)
		}
	})
	for flags, want := range map[string]struct{ json, debug bool }{
		"":                         {},
		"--log-level=debug":        {debug: true},
		"--log-output-level=debug": {debug: true}, // as istiod calls it
		"--log_output_level=debug": {debug: true},
		"--log-as-json":            {json: true},
		"--log_as_json":            {json: true},
	} {
		file := filepath.Join(t.TempDir(), "log")
		root := command(programs{serve: func(context.Context, bootstrap.Config) error {
			istiolog.New().Info("told")
			istiolog.New().Debug("whispered")
			return nil
		}})
		root.SetArgs(append([]string{"server", "--log-target=" + file}, strings.Fields(flags)...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", flags, err)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := string(text)
		if !strings.Contains(lines, "told") || strings.Contains(lines, "whispered") != want.debug || strings.HasPrefix(lines, "{") != want.json {
			t.Errorf("%s: the log is\n%s", flags, lines)
		}
	}
}
