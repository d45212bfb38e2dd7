package main

import (
	"strings"
	"testing"

	"istio.io/pkg/log"
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
		"debug":               {log.DebugLevel, log.DebugLevel},
		"info":                {log.InfoLevel, log.InfoLevel},
		"warn":                {log.WarnLevel, log.WarnLevel},
		"error":               {log.ErrorLevel, log.ErrorLevel},
		"none":                {log.NoneLevel, log.NoneLevel},
		"warn,pilot:debug":    {log.DebugLevel, log.WarnLevel},
		"pilot:debug,warn":    {log.DebugLevel, log.WarnLevel},
		"pilot:error":         {log.ErrorLevel, log.InfoLevel},
		"default:error,debug": {log.DebugLevel, log.ErrorLevel},
		"warn,error":          {log.ErrorLevel, log.ErrorLevel},
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
