package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/inspect"
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
	err = play(t.Context(), set, &screen{out: &out})
	for _, want := range []string{"/absent/bin/helm is missing: run `make build`", "/absent/deploy/charts/pilot/Chart.yaml is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("it printed %s", out.String())
	}
}

// The names are as long as in a cluster.
func TestTable(t *testing.T) {
	stable := "pilot-stable-6cfd8f489b-spbvd"
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)
	before := view{
		defaultRevision: "stable",
		elections:       map[string]inspect.Election{"istio-namespace-controller-election": {Holder: stable, Since: at}, "istio-leader": {Holder: stable, Since: at}, "old": {}},
		replicas: map[string]replica{
			stable:                          {revision: "stable", address: "127.191.255.253", ready: "yes"},
			"pilot-canary-5ff8d9b7b6-9dwrn": {revision: "canary", address: "127.146.96.4", ready: "terminating", restarts: 2},
		},
		gateway: "http://127.191.255.253:8080", answeredBy: "web-istio-6cfd8f489b-spbvd", ingress: "127.191.255.252",
	}
	want := `ELECTION                            HOLDER                        SINCE
istio-leader                        pilot-stable-6cfd8f489b-spbvd 12:00:00
istio-namespace-controller-election pilot-stable-6cfd8f489b-spbvd 12:00:00
old                                 (free)

POD (default revision: stable) REVISION READY       RESTARTS ADDRESS
pilot-canary-5ff8d9b7b6-9dwrn  canary   terminating 2        127.146.96.4
pilot-stable-6cfd8f489b-spbvd  stable   yes         0        127.191.255.253

SAMPLE             ADDRESS                     ANSWERED BY
Gateway shop/web-1 http://127.191.255.253:8080 web-istio-6cfd8f489b-spbvd
Ingress shop/web-1 127.191.255.252`
	if got := strings.Join(before.table(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	after := view{defaultRevision: "canary", elections: map[string]inspect.Election{
		"istio-namespace-controller-election": {State: inspect.Unreadable}, "istio-leader": {Holder: "pilot-canary", Since: at},
	}}
	if got := fmt.Sprintf("%q", changes(before, after)); got != `["the default revision is \"canary\"" "pilot-canary leads istio-leader" `+
		`"the record of istio-namespace-controller-election is unreadable" "the lock old was deleted"]` {
		t.Errorf("changes: %s", got)
	}
}

func TestScreen(t *testing.T) {
	var out strings.Builder
	width, height := 12, 5
	s := &screen{out: &out, size: func() (int, int) { return width, height }}
	s.show([]string{"0123456789abc"})
	s.print("news\n")
	s.show([]string{"1", "2", "3", "4", "5"})
	width = 40
	s.show([]string{"1"})
	s.leave()
	s.print("end\n")
	want := "\n0123456789…\n" + "\x1b[2A\x1b[Jnews\n\n0123456789…\n" + "\x1b[2A\x1b[J\n1\n2\n… 3 more l…\n" + "\x1b[2J\x1b[H\n1\n" + "end\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	s = &screen{out: &out}
	s.show([]string{"a"})
	s.show([]string{"a"})
	s.print("news\n")
	if got := out.String(); got != "\na\n\nnews\n" {
		t.Errorf("without a terminal: %q", got)
	}
}

// A demo whose servers run without elections must fail in the first step. The working directory is outside the repository.
func TestDemo_WithoutElections(t *testing.T) {
	set, err := parse([]string{"demo", "--disable-elections"}, io.Discard)
	harness.Must(t, err)
	harness.Must(t, set.rollout.Build(t.Context(), filepath.Join("..", ".."), t.TempDir()))
	t.Chdir(t.TempDir())
	var out strings.Builder
	err = play(t.Context(), set, &screen{out: &out})
	if err == nil || !strings.Contains(err.Error(), "step 1") || !strings.Contains(err.Error(), "unelected") {
		t.Errorf("demo without elections: %v; it printed\n%s", err, out.String())
	}
}
