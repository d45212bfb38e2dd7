package ctl

import (
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"incumbent.dev/incumbent/electionctl/internal/run"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestRun_ExitCode(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.elect("each", "pilot-1", "stable", leaderelection.LockTypeLease, nil)
	e.shows("each", "leads")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"success":          {[]string{"--election=a", "--once", "--", "/bin/sh", "-c", "exit 0"}, Done, ""},
		"exit code":        {[]string{"--election=b", "--once", "--", "/bin/sh", "-c", "exit 7"}, 7, ""},
		"signal":           {[]string{"--election=c", "--once", "/bin/sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		"no election":      {[]string{"--once", "true"}, misused, "--election is missing"},
		"no program":       {[]string{"--election=d"}, misused, "missing argument PROGRAM"},
		"unknown program":  {[]string{"--election=d", "--", "/no/such"}, run.NotFound, "program /no/such: "},
		"negative grace":   {[]string{"--election=d", "--grace=-1s", "--", "true"}, misused, "--grace=-1s is negative"},
		"invalid name":     {[]string{"--election=A b", "--", "true"}, misused, `name "A b": `},
		"ConfigMap lock":   {[]string{"--election=istio-leader", "--", "true"}, Refused, "election istio-leader has the ConfigMap NAMESPACE/istio-leader as lock, last held by istiod-stable-1, but run uses a Lease"},
		"lock of revision": {[]string{"--election=each", "--", "true"}, Refused, "Lease NAMESPACE/each belongs to a control plane (holder pilot-1)"},
		"invalid duration": {[]string{"--election=d", "--lease-duration=1ms", "--", "true"}, misused, "LeaseDuration 1ms"},
	} {
		got := e.run(append([]string{"run"}, c.args...)...)
		t.Log(name)
		e.expect(got, c.code, "", c.says)
	}
}

// The exit code of package audit is the exit code of the program.
func TestRun_AuditExitCode(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	if code := (&Program{IOStreams: streams}).Run(t.Context(), []string{"audit", "-"}); code != misused {
		t.Errorf("audit of an empty log: exit code %d\n%s", code, errOut)
	}
}
