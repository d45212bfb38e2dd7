package ctl

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestReads(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.istiod("istio-status-leader", `{"holderIdentity":`)
	e.istiod("istio-analyze-leader", `{"holderIdentity":"","holderKey":"","leaseDurationSeconds":1,"acquireTime":null,"renewTime":null,"leaderTransitions":7}`)
	e.clientGo("operator", "operator-0_\x1b[31mred")
	e.elect("ours", "pilot-stable-1", "stable", leaderelection.LeaseLock, nil)
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
			if got.code != Done || got.errs != "" {
				t.Errorf("exit %d: %s", got.code, got.errs)
			}
			golden(t, file, got.out)
		})
	}
}

func TestBadInput(t *testing.T) {
	e := newEnvironment(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unknown election": {[]string{"explain", "nobody"}, NotFound, "there is no election nobody in namespace NAMESPACE; see which there are"},
		"no election":      {[]string{"explain"}, Misused, "name the election"},
		"one too many":     {[]string{"explain", "a", "b"}, Misused, `what is "b"?`},
		"format":           {[]string{"list", "-o", "xml"}, Misused, "--output"},
		"flag":             {[]string{"list", "--nope"}, Misused, "unknown flag: --nope; see"},
		"verb":             {[]string{"lits"}, Misused, "lits"},
		"no permission":    {[]string{"list", "--as", "nobody"}, Refused, "kubectl auth can-i --list"},
		"server away":      {[]string{"list", "--server", "https://127.0.0.1:1"}, Failed, "kubectl cluster-info"},
		"context":          {[]string{"list", "--context", "nope"}, Failed, "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.run(c.args...)
			if got.code != c.code || !strings.Contains(got.errs, c.says) {
				t.Errorf("exit %d, %q", got.code, got.errs)
			}
			if lines := strings.Count(got.errs, "\n"); lines != 1 {
				t.Errorf("%d lines: %s", lines, got.errs)
			}
		})
	}
}

func TestNothingThere(t *testing.T) {
	e := newEnvironment(t)
	if got := e.run("list"); got.code != Done || !strings.Contains(got.errs, "There are no elections in namespace NAMESPACE; see all:") {
		t.Errorf("%+v", got)
	}
}
