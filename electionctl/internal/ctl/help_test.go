package ctl

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"incumbent.dev/incumbent/internal/testutil/golden"
)

// TestCommandReference compares the commands with the table in docs/tools.md, which -rewrite generates.
func TestCommandReference(t *testing.T) {
	table := "\n| command | effect | flags |\n| --- | --- | --- |\n" + strings.Join(commandRows((&Program{}).Command()), "") + "\n"
	golden.Section(t, "../../../docs/tools.md", "<!-- begin of the generated table -->\n", "<!-- end of the generated table -->", table)
}

// common are the flags of many commands.
var common = []string{"allow-missing-template-keys", "help", "output", "template", "timeout", "yes"}

// commandRows returns a row for each command that can be run, with the flags that only few commands have.
func commandRows(c *cobra.Command) (rows []string) {
	var flags []string
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(common, f.Name) && !f.Hidden {
			flags = append(flags, "`--"+f.Name+"`")
		}
	})
	if c.Runnable() && c.HasParent() {
		use := strings.TrimSuffix(strings.TrimPrefix(c.UseLine(), "electionctl "), " [flags]")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", strings.ReplaceAll(use, "|", "\\|"), c.Short, strings.Join(flags, " ")))
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" { // commands of cobra
			rows = append(rows, commandRows(sub)...)
		}
	}
	return rows
}

func TestExplained(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	if err := explained(apierrors.NewUnauthorized("no token")); err == nil || !strings.Contains(err.Error(), "no token; renew them") {
		t.Errorf("unauthorized: %v", err)
	}
	if err := explained(apierrors.NewNotFound(leases, "x")); err == nil || !apierrors.IsNotFound(err) {
		t.Errorf("not found: %v", err)
	}
}

// A holder with line breaks cannot forge lines of the output.
func TestSafe_OneLine(t *testing.T) {
	var out strings.Builder
	safe{&out}.line("\nholder  %s, term %d", "a\nstate  leads\x1b[31m", 3)
	if want := "\nholder  a state  leads\uFFFD[31m, term 3\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// Machine-readable output has no characters that a terminal obeys.
func TestOutput_Escapes(t *testing.T) {
	u, err := object("Election", "n", "e", map[string]any{"holder": "a\u009b31m\u202eb\tc"})
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"json": `"a\u009b31m\u202eb\tc"`, "yaml": `31m`, "jsonpath={.holder}": "a\uFFFD31m\uFFFDb\tc"} {
		out := printing(&cobra.Command{})
		*out.flags.OutputFormat = format
		var text strings.Builder
		if err := out.print(&text, u); err != nil {
			t.Fatal(err)
		}
		if got := text.String(); !strings.Contains(got, want) || strings.ContainsAny(got, "\u009b\u202e") {
			t.Errorf("%s: %q, want %s", format, got, want)
		}
	}
}

// A full disk must not look like a cluster without problems.
func TestRun_OutputFails(t *testing.T) {
	full, broken := io.Pipe()
	full.CloseWithError(errors.New("no space left"))
	var errs strings.Builder
	p := &Program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: broken, ErrOut: &errs}}
	if code := p.Run(t.Context(), []string{"version"}); code != Failed || errs.String() != "electionctl: no space left\n" {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

func TestInOneLine(t *testing.T) {
	if got := inOneLine("a\n\n  b \n"); got != "a; b" {
		t.Errorf("%q", got)
	}
}
