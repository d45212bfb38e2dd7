package ctl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestCommandReference compares the commands with the table in docs/tools.md, which -rewrite generates.
func TestCommandReference(t *testing.T) {
	const page, begin, end = "../../../docs/tools.md", "<!-- begin of the generated table -->\n", "<!-- end of the generated table -->"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no generated table", page)
	}
	table := "\n| command | effect | flags |\n| --- | --- | --- |\n" + strings.Join(commandRows((&Program{}).Command()), "") + "\n"
	if *rewrite {
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != table {
		t.Errorf("%s (update it with -rewrite), want:\n%s\ngot:\n%s", page, table, got)
	}
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
