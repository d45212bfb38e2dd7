package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

// pilot runs a command line and returns its output.
func pilot(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := command(programs{serve: serve})
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// full is a writer that fails.
type full struct{}

var errFull = errors.New("no space left in the test")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputError(t *testing.T) {
	for _, args := range [][]string{{"features"}, {"version"}, {"version", "-o", "json"}, {"fence", "render", "--revisions=only"}} {
		root := command(programs{serve: serve})
		root.SetOut(full{})
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); !errors.Is(err, errFull) {
			t.Errorf("pilot %q: %v", args, err)
		}
	}
}

// TestHelp compares the help of all commands and the list of variables, without an environment.
func TestHelp(t *testing.T) {
	for _, variable := range features.List() {
		t.Setenv(variable.Name, "")
	}
	var all strings.Builder
	commands := [][]string{{"features"}}
	var add func(c *cobra.Command, words []string)
	add = func(c *cobra.Command, words []string) {
		commands = append(commands, append(slices.Clone(words), "--help"))
		for _, below := range c.Commands() {
			add(below, append(slices.Clone(words), below.Name()))
		}
	}
	add(command(programs{}), nil)
	for _, args := range commands {
		out, err := pilot(t, args...)
		harness.Must(t, err)
		all.WriteString("$ pilot " + strings.Join(args, " ") + "\n" + out + "\n")
	}
	golden.File(t, "testdata/help.txt", all.String())
}

func TestInputErrors(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"variable":              {map[string]string{"ENABLE_LEADER_ELECTION": "maybe"}, []string{"server"}, `ENABLE_LEADER_ELECTION="maybe"`},
		"variable, listed":      {map[string]string{"ENABLE_LEADER_ELECTION": "maybe"}, []string{"features"}, `ENABLE_LEADER_ELECTION="maybe"`},
		"no identity":           {nil, []string{"server", "--ca-bundle=x"}, "--identity is empty"},
		"flag before env":       {map[string]string{"POD_NAME": "a"}, []string{"server", "--ca-bundle=x", "--identity=A"}, `--identity="A"`},
		"kubeconfig":            {map[string]string{"POD_NAME": "a"}, []string{"server", "--ca-bundle=x", "--kubeconfig=/no/such"}, "set --kubeconfig=FILE"},
		"KUBECONFIG":            {map[string]string{"POD_NAME": "a", "KUBECONFIG": "/no/such"}, []string{"server", "--ca-bundle=x"}, "KUBECONFIG=/no/such"},
		"duration":              {map[string]string{"POD_NAME": "a"}, []string{"server", "--lease-duration=30"}, "lease-duration"},
		"further arguments":     {nil, []string{"server", "now"}, "now"},
		"arguments of features": {nil, []string{"features", "now"}, "now"},
		"arguments of version":  {nil, []string{"version", "now"}, "now"},
		"log level":             {nil, []string{"server", "--log-level=loud"}, `--log-level=loud: "loud"`},
		"log scope":             {nil, []string{"server", "--log-level=info,unknown:debug"}, `unknown scope "unknown"`},
		"log target":            {nil, []string{"server", "--log-target=/no/such/folder/log"}, "--log-target=/no/such/folder/log"},
		"fence file":            {nil, []string{"fence", "render", "--file=/no/such"}, "--file: open /no/such"},
		"fence account":         {nil, []string{"fence", "render", "--service-account=A", "--revisions=only"}, `service account "istio-system/A"`},
		"fence kubeconfig":      {nil, []string{"fence", "verify", "--kubeconfig=/no/such", "--revisions=only"}, "set --kubeconfig=FILE"},
		"no fence revisions":    {nil, []string{"fence", "render"}, "give the revisions with --revisions"},
		"fence argument":        {nil, []string{"fence", "render", "now"}, "now"},
		"fence verb":            {nil, []string{"fence", "dance"}, `unknown command "dance" for "pilot fence"`},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			if _, err := pilot(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v lacks %s", err, test.want)
			}
		})
	}
}

func TestVersionCommand(t *testing.T) {
	want := bootstrap.ReadBuild()
	out, err := pilot(t, "version", "-o", "json")
	harness.Must(t, err)
	var got bootstrap.Build
	if err := json.Unmarshal([]byte(out), &got); err != nil || got != want || !strings.Contains(out, "\n  \"revision\": ") {
		t.Errorf("%v in %s, want %+v", err, out, want)
	}
	if text, err := pilot(t, "version"); err != nil || text != want.String()+"\n" {
		t.Errorf("%v, %s", err, text)
	}
	if _, err := pilot(t, "version", "-o", "yaml"); err == nil || !strings.Contains(err.Error(), `--output="yaml"`) {
		t.Errorf("error %v lacks the flag", err)
	}
}
