package ctl

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestReads(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.istiod("istio-status-leader", `{"holderIdentity":`)
	e.istiod("istio-analyze-leader", `{"holderIdentity":"","holderKey":"","leaseDurationSeconds":1,"acquireTime":null,"renewTime":null,"leaderTransitions":7}`)
	e.clientGo("operator", "operator-0_\x1b[31mred")
	e.elect("ours", "pilot-stable-1", "stable", leaderelection.LockTypeLease, nil)
	e.shows("ours", "leads")

	for file, args := range map[string][]string{
		"list.txt":           {"list"},
		"wide.txt":           {"list", "-o", "wide"},
		"list.yaml":          {"list", "-o", "yaml"},
		"name.txt":           {"list", "-o", "name"},
		"jsonpath.txt":       {"list", "-o", `jsonpath={range .items[*]}{.metadata.name}={.holder}{"\n"}{end}`},
		"explain-ours.txt":   {"explain", "ours", "--default-revision", "canary"},
		"explain-istiod.txt": {"explain", "istio-leader", "--default-revision", "canary"},
		"explain-bad.txt":    {"explain", "istio-status-leader"},
	} {
		t.Run(file, func(t *testing.T) {
			got := e.run(args...)
			if got.code != Done || got.errs != "" && args[0] != "list" {
				t.Errorf("exit %d: %s", got.code, got.errs)
			}
			golden.File(t, "testdata/"+file, got.out+got.errs)
		})
	}
}

func TestBadInput(t *testing.T) {
	e := newEnvironment(t)
	untrusted, plaintext := httptest.NewUnstartedServer(nil), httptest.NewServer(nil)
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	defer untrusted.Close()
	defer plaintext.Close()
	elsewhere := newEnvironment(t)
	elsewhere.istiod("istio-leader", record)
	directory := t.TempDir()
	file := func(content string) string {
		name := filepath.Join(directory, fmt.Sprintf("%d", len(content)))
		e.must(nil, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	const withPlugin = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
		users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}}]}`
	const withoutCluster = `{apiVersion: v1, kind: Config, current-context: prod, contexts: [{name: prod, context: {cluster: east}}]}`
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown election": {[]string{"explain", "nothing"}, NotFound, "election nothing not found in namespace NAMESPACE; list elections"},
		"no election":      {[]string{"explain"}, misused, "missing argument election"},
		"extra argument":   {[]string{"explain", "a", "b"}, misused, `unexpected argument "b"`},
		"list argument":    {[]string{"list", "surplus"}, misused, `unexpected argument "surplus"`},
		"doctor argument":  {[]string{"doctor", "surplus"}, misused, `unexpected argument "surplus"`},
		"plan argument":    {[]string{"plan", "surplus"}, misused, `unexpected argument "surplus"`},
		"format":           {[]string{"list", "-o", "xml"}, misused, "--output"},
		"flag":             {[]string{"list", "--nope"}, misused, "unknown flag: --nope; see"},
		"verb":             {[]string{"lits"}, misused, "lits"},
		"no permission":    {[]string{"list", "--as", "nobody"}, Refused, "kubectl auth can-i --list"},
		"no server":        {[]string{"list", "--server", "https://127.0.0.1:1"}, Failed, "kubectl cluster-info"},
		"no cluster":       {[]string{"list", "--kubeconfig", "/dev/null"}, misused, "no cluster is configured in /dev/null: use --kubeconfig"},
		"missing cluster":  {[]string{"list", "--kubeconfig", file(withoutCluster)}, misused, `context "prod" has cluster "east", which does not exist in `},
		"no kubeconfig":    {[]string{"list", "--kubeconfig", "/nothing/here"}, misused, "kubeconfig: stat /nothing/here: no such file or directory; use --kubeconfig or set KUBECONFIG"},
		"other CA":         {[]string{"list", "--server", untrusted.URL}, Failed, "TLS connection to the API server failed"},
		"no TLS":           {[]string{"list", "--server", strings.Replace(plaintext.URL, "http:", "https:", 1)}, Failed, "TLS connection to the API server failed"},
		"list, empty":      {[]string{"list"}, Done, "no elections found in namespace NAMESPACE; elections exist in: "},
		"plan, empty":      {[]string{"plan", "--default-revision", "canary"}, NotFound, "no elections found in namespace NAMESPACE; elections exist in: "},
		"doctor, empty":    {[]string{"doctor"}, NotFound, "no elections found in namespace NAMESPACE; elections exist in: "},
		"context":          {[]string{"list", "--context", "nope"}, misused, `: context "nope" does not exist; list its contexts: kubectl config get-contexts`},
		"broken file":      {[]string{"list", "--kubeconfig", file("words")}, misused, "kubeconfig " + file("words") + ": error loading config file"},
		"no plugin":        {[]string{"list", "--kubeconfig", file(withPlugin)}, Failed, "failed to get credentials for the API server"},
		"address":          {[]string{"list", "--server", "nonsense:::"}, misused, "invalid address of the API server: "},
		"request timeout":  {[]string{"list", "--request-timeout", "soon"}, misused, "--request-timeout=soon: give a number of seconds"},
		"template":         {[]string{"list", "-o", "jsonpath={"}, misused, "--output: error parsing jsonpath {, unclosed action\n"},
		"observe":          {[]string{"explain", "x", "--observe", "-1s"}, misused, "--observe: duration -1s: must not be negative"},
		"watch arguments":  {[]string{"watch", "a", "b"}, misused, `unexpected argument "b"`},
		"default verb":     {[]string{"default", "sett"}, misused, `unknown command "sett"; see electionctl default --help`},
		"kubectl get":      {[]string{"get", "istio-leader"}, misused, `unexpected argument "istio-leader"; for one election: electionctl explain istio-leader`},
		"kubectl delete":   {[]string{"delete", "istio-leader"}, misused, `unknown command "delete"; use electionctl step-down NAME`},
		"fence verb":       {[]string{"fence", "check"}, misused, `unknown command "check"; see electionctl fence --help`},
		"fence argument":   {[]string{"fence", "verify", "x"}, misused, `unexpected argument "x"`},
		"fence, context":   {[]string{"fence", "verify", "--context", "nope"}, misused, "list its contexts"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.run(c.args...)
			if got.code != c.code || !strings.Contains(got.errs, c.want) {
				t.Errorf("exit %d, %q", got.code, got.errs)
			}
			if lines := strings.Count(got.errs, "\n"); lines != 1 {
				t.Errorf("%d lines: %s", lines, got.errs)
			}
		})
	}
}

func TestExplain_Observe(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("silent", short(record))
	e.istiod("led", record)
	e.expect(e.run("explain", "silent", "--observe", "1100ms"), Done, "alive        no: not renewed for its lease duration", "watching for 1.1s")
	e.expect(e.run("explain", "led", "--observe", "1ms"), Done, "alive        unknown")
	var reads atomic.Int32
	e.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") && reads.Add(1) == 2 { // the leader renews between both reads
				e.annotate("led", recordKey, current(record))
			}
			return next.RoundTrip(r)
		})
	}
	e.expect(e.run("explain", "led", "--observe", "1ms"), Done, "alive        yes")
}

func TestWriteTable_Colours(t *testing.T) {
	rows := func() [][]cell {
		return [][]cell{{{text: "a", colour: red}, {text: "b"}}, {{text: "long\nline"}, {text: "c", colour: green}}}
	}
	var with, without strings.Builder
	(&Program{Colour: true}).writeTable(&with, []string{"X", "Y"}, rows())
	(&Program{}).writeTable(&without, []string{"X", "Y"}, rows())
	if want := "X           Y\na           b\nlong line   c\n"; without.String() != want {
		t.Errorf("%q", without.String())
	}
	var narrow, wide strings.Builder
	(&Program{Width: 12}).writeTable(&narrow, []string{"X", "  Y"}, append(rows(), []cell{{}, {text: "d"}}))
	(&Program{Width: 13}).writeTable(&wide, []string{"X", "Y"}, rows())
	if want := "X: a\nY: b\n\nX: long line\nY: c\nY: d\n"; narrow.String() != want {
		t.Errorf("%q", narrow.String())
	}
	if wide.String() != without.String() {
		t.Errorf("%q", wide.String())
	}
	if want := "X           Y\n\x1b[31ma\x1b[0m           b\nlong line   \x1b[32mc\x1b[0m\n"; with.String() != want {
		t.Errorf("%q", with.String())
	}
}
