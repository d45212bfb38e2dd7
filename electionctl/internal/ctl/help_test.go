package ctl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// runLocal returns the output of electionctl for arguments that need no API server.
func runLocal(args ...string) (code int, out string) {
	var b bytes.Buffer
	p := &Program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &b, ErrOut: &b}}
	code = p.Run(context.Background(), args)
	return code, b.String()
}

// TestCommandReference compares the help of all commands with docs/electionctl-commands.md, which -rewrite generates.
func TestCommandReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# electionctl commands\n\nGenerated from the help texts: `cd electionctl && go test ./internal/ctl -run CommandReference -rewrite`. See [tools](tools.md).\n")
	var add func(c *cobra.Command, path []string)
	add = func(c *cobra.Command, path []string) {
		code, out := runLocal(append(path, "--help")...)
		if code != Done {
			t.Errorf("%q: exit code %d", path, code)
		}
		title := strings.Join(append([]string{"electionctl"}, path...), " ")
		b.WriteString("\n## " + title + "\n\n```text\n" + strings.TrimRight(out, "\n") + "\n```\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" { // commands of cobra
				add(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	add((&Program{}).Command(), nil)
	golden(t, "../../../../docs/electionctl-commands.md", b.String())
}

func TestUnexpectedArgument(t *testing.T) {
	for _, command := range []string{"list", "doctor", "plan"} {
		if code, out := runLocal(command, "surplus"); code != Misused || !strings.Contains(out, `unexpected argument "surplus"`) {
			t.Errorf("%s: exit code %d, %q", command, code, out)
		}
	}
}

func TestExplained(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	var c coded
	if err := explained(apierrors.NewForbidden(leases, "x", errors.New("no"))); !errors.As(err, &c) || c.code != Refused || !strings.Contains(err.Error(), "kubectl auth can-i") {
		t.Errorf("forbidden: %v", err)
	}
	if err := explained(apierrors.NewUnauthorized("no token")); err == nil || !strings.Contains(err.Error(), "no token; renew them") {
		t.Errorf("unauthorized: %v", err)
	}
	if err := explained(apierrors.NewNotFound(leases, "x")); err == nil || !apierrors.IsNotFound(err) {
		t.Errorf("not found: %v", err)
	}
}
