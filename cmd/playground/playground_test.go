package main

import (
	"errors"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "missing command",
		"play":                                   `unknown command "play"`,
		"run now":                                `unexpected argument "now"`,
		"upgrade --coordinated":                  "does not support",
		"run --coordinated":                      "",
		"demo":                                   "",
		"demo --coordinated --disable-elections": "exclude each other",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("playground %s: %v, want %q", args, err, want)
		}
	}
	for _, args := range [][]string{{"--help"}, {"run", "--help"}} {
		var help strings.Builder
		if _, err := parse(args, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "Usage: playground COMMAND") {
			t.Errorf("%q: %v\n%s", args, err, help.String())
		}
	}
}

// Nothing is started if a program is missing.
func TestPlay_MissingProgram(t *testing.T) {
	set, err := parse([]string{"run"}, io.Discard)
	harness.Must(t, err)
	set.usePrograms("/absent/bin")
	var out strings.Builder
	err = play(t.Context(), set, &out)
	for _, want := range []string{"/absent/bin/helm is missing: run `make build`", "/absent/deploy/charts/pilot/Chart.yaml is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("it printed %s", out.String())
	}
}

// A demo whose servers run without elections must fail in the first step. The working directory is outside the repository.
func TestDemo_WithoutElections(t *testing.T) {
	set, err := parse([]string{"demo", "--disable-elections"}, io.Discard)
	harness.Must(t, err)
	harness.Must(t, set.rollout.Build(t.Context(), filepath.Join("..", ".."), t.TempDir()))
	t.Chdir(t.TempDir())
	var out strings.Builder
	err = play(t.Context(), set, &out)
	if err == nil || !strings.Contains(err.Error(), "step 1") || !strings.Contains(err.Error(), "unelected") {
		t.Errorf("demo without elections: %v; it printed\n%s", err, out.String())
	}
}
