package fence

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestCommands_StepByStep(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	home := c.Namespace(t)
	base := install.Config{RESTConfig: c.Admin(), Namespace: home, Elections: bootstrap.FencedElections(bootstrap.Config{}), Revisions: []string{"stable"}, Lock: "lease"}
	commands := map[string]func(install.Config, context.Context, io.Writer) error{"install": install.Config.Install, "verify": install.Config.Verify, "remove": install.Config.Remove}
	with := func(change func(*install.Config)) install.Config {
		config := base
		change(&config)
		return config
	}
	unclear := with(func(c *install.Config) { c.AllowUnclear = true })
	for i, step := range []struct {
		command string
		config  install.Config
		prints  string
		without string
		err     string
	}{
		{"verify", unclear, "FAILS", "holds  policy", "not in effect"},
		{"install", base, "applied ", "holds ", ""},
		// Without the service account some writes cannot be tried.
		{"install", with(func(c *install.Config) { c.Wait, c.AllowUnclear = time.Minute, true }), "holds ", "FAILS", ""},
		{"verify", base, "holds ", "FAILS", "--allow-unclear"},
		{"verify", with(func(c *install.Config) { c.Strict, c.AllowUnclear = true, true }), "holds ", "FAILS", "--strict"},
		// Another set for the same locks.
		{"install", with(func(c *install.Config) { c.Set = home + "-2" }), "", "applied ", "--replace"},
		{"verify", unclear, "holds ", "FAILS", ""},
		{"install", with(func(c *install.Config) { c.Set, c.Replace = home+"-2", true }), "applied ", "", ""},
		{"remove", with(func(c *install.Config) { c.Set = home + "-2" }), "removed ", "not installed", ""},
		{"remove", base, "fence \"" + home + "\" is not installed; ", "removed ", ""},
	} {
		var out strings.Builder
		err := commands[step.command](step.config, t.Context(), &out)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("step %d, %s: error %v, want %q", i, step.command, err, step.err)
		}
		if !strings.Contains(out.String(), step.prints) || step.without != "" && strings.Contains(out.String(), step.without) {
			t.Errorf("step %d, %s: want %q and not %q in\n%s", i, step.command, step.prints, step.without, &out)
		}
	}
}
