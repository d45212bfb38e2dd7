package ctl

import "testing"

func TestRun_ExitCode(t *testing.T) {
	e := newEnvironment(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"success":          {[]string{"--election=a", "--once", "--", "/bin/sh", "-c", "exit 0"}, Done, ""},
		"exit code":        {[]string{"--election=b", "--once", "--", "/bin/sh", "-c", "exit 7"}, 7, ""},
		"signal":           {[]string{"--election=c", "--once", "/bin/sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		"no election":      {[]string{"--once", "true"}, Misused, "--election is missing"},
		"no program":       {[]string{"--election=d"}, Misused, "missing argument PROGRAM"},
		"unknown program":  {[]string{"--election=d", "--", "/no/such"}, Failed, "find program"},
		"negative grace":   {[]string{"--election=d", "--grace=-1s", "--", "true"}, Misused, "--grace=-1s is negative"},
		"invalid duration": {[]string{"--election=d", "--lease-duration=1ms", "--", "true"}, Failed, "LeaseDuration 1ms"},
	} {
		got := e.run(append([]string{"run"}, c.args...)...)
		t.Log(name)
		e.expect(got, c.code, "", c.says)
	}
}
