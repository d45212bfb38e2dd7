package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"istio.io/pkg/log"

	"incumbent.dev/incumbent/internal/istiolog"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// restoreLog configures the default log when the test ends.
func restoreLog(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := (&logging{level: "info", target: []string{"stdout"}}).configure(); err != nil {
			t.Error(err)
		}
	})
}

func TestLogLevels(t *testing.T) {
	const own, other = "pilot", "default"
	restoreLog(t)
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
				t.Errorf("--log-level=%s: scope %s is %v, want %v", level, scope, got, want[i])
			}
		}
	}
}

func TestLogFlags(t *testing.T) {
	clearVariables(t)
	restoreLog(t)
	for flags, want := range map[string]struct{ json, debug bool }{
		"":                         {},
		"--log-level=debug":        {debug: true},
		"--log-output-level=debug": {debug: true}, // the name in istiod
		"--log_output_level=debug": {debug: true},
		"--log-as-json":            {json: true},
		"--log_as_json":            {json: true},
	} {
		file := filepath.Join(t.TempDir(), "log")
		root := command(programs{serve: func(context.Context, bootstrap.Config) error {
			istiolog.New().Info("at info")
			istiolog.New().Debug("at debug")
			return nil
		}})
		root.SetArgs(append([]string{"server", "--log-target=" + file}, strings.Fields(flags)...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", flags, err)
			continue
		}
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		lines := string(text)
		if !strings.Contains(lines, "at info") || strings.Contains(lines, "at debug") != want.debug || strings.HasPrefix(lines, "{") != want.json {
			t.Errorf("%s: the log is\n%s", flags, lines)
		}
	}
}
