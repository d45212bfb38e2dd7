package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

// The exit codes. docs/electionctl.md tells them.
const (
	Done = iota
	Failed
	Misused
	NotFound
	Refused
	Unhealthy
	Interrupted = 130
)

// coded is an error with the exit code that says its kind.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

func withCode(code int, format string, args ...any) error {
	return coded{error: fmt.Errorf(format, args...), code: code}
}

// Program is what a command runs with.
type Program struct {
	genericiooptions.IOStreams
	// Colour marks states, Interactive says that somebody can answer a question.
	Colour, Interactive bool

	flags *genericclioptions.ConfigFlags
	wrap  func(*rest.Config) *rest.Config // for tests
	all   bool                            // namespaces
}

// Run does what the arguments say and returns the exit code. The error is printed.
func (p *Program) Run(ctx context.Context, args []string) int {
	root := p.Command()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return Done
	}
	if ctx.Err() != nil {
		return Interrupted
	}
	err = explained(err)
	if strings.HasPrefix(err.Error(), "required flag(s)") {
		err = withCode(Misused, "%w: see --help", err)
	}
	fmt.Fprintln(p.ErrOut, "electionctl:", strings.ReplaceAll(plain(err.Error()), "\n", "; "))
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return Failed
}

// Command puts the command line together.
func (p *Program) Command() *cobra.Command {
	p.flags = genericclioptions.NewConfigFlags(true)
	p.flags.WrapConfigFn = p.wrap
	root := &cobra.Command{
		Use:         "electionctl",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name()},
		Short:       "See who leads which election, and move it safely",
		Long: `See who leads which election, of which revision, why, and who could take over; see what a change of
the default revision would do; and move elections safely. Reads work for istiod's and client-go's elections, too.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return withCode(Misused, "there is no command %q; see %s --help", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return withCode(Misused, "%w; see %s --help", err, cmd.CommandPath())
	})
	p.flags.AddFlags(root.PersistentFlags())
	hideRare(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "reads", Title: "See:"},
		&cobra.Group{ID: "orders", Title: "Move:"},
		&cobra.Group{ID: "cluster", Title: "The cluster:"},
	)
	p.add(root, "reads", p.list(), p.watch(), p.history(), p.explain(), p.plan())
	p.add(root, "orders", p.transfer(), p.stepDown(), p.pause(), p.resume())
	p.add(root, "cluster", p.doctor(), p.defaults(), p.fence(), p.page())
	return root
}

// hideRare leaves the flags that hardly anybody gives by hand out of the help; they work as kubectl's do.
func hideRare(flags *pflag.FlagSet) {
	usual := []string{"as", "context", "kubeconfig", "namespace", "request-timeout"}
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(usual, f.Name) })
}

func (p *Program) add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// name is what the user typed: kubectl runs us as its plugin.
func name() string {
	if strings.Contains(os.Args[0], "kubectl-election") {
		return "kubectl election"
	}
	return "electionctl"
}

// exactly checks the number of arguments, and says what is missing.
func exactly(what ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(what):
			return withCode(Misused, "name the %s: %s", what[len(args)], cmd.UseLine())
		case len(args) > len(what):
			return withCode(Misused, "what is %q? %s", args[len(what)], cmd.UseLine())
		}
		return nil
	}
}
