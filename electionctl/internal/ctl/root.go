package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// Exit codes, see docs/tools.md.
const (
	Done = iota
	Failed
	misused
	NotFound
	Refused
	unhealthy
	Interrupted = 130
)

// coded is an error with an exit code.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

func withCode(code int, format string, args ...any) error {
	return coded{error: fmt.Errorf(format, args...), code: code}
}

// Program is the environment of a command.
type Program struct {
	genericiooptions.IOStreams
	// Colour enables colours. Interactive is true if the user can answer a question.
	Colour, Interactive bool
	// Width is the width of the terminal. If 0, tables have any width.
	Width int

	flags *genericclioptions.ConfigFlags
	wrap  func(*rest.Config) *rest.Config // for tests
	all   bool                            // namespaces
}

// Main runs a command with the streams and signals of the process, and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt) //nolint:forbidigo // the process' root context
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	terminal := term.IsTerminal(int(os.Stdout.Fd()))
	width, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 without a terminal
	p := &Program{
		IOStreams:   genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Colour:      terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Width:       width,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())),
	}
	return p.Run(ctx, args)
}

// Run executes a command, prints its error, and returns the exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	out := &checked{Writer: p.Out}
	p.Out = out
	root := p.Command()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	err := cmp.Or(root.ExecuteContext(ctx), out.err)
	if err == nil {
		return Done
	}
	if ended, ok := errors.AsType[programEnded](err); ok {
		return int(ended)
	}
	if c, ok := errors.AsType[coded](err); ctx.Err() != nil && (!ok || c.code != Interrupted) {
		return Interrupted
	}
	err = explained(err)
	if strings.HasPrefix(err.Error(), "required flag(s)") {
		err = withCode(misused, "%w: see --help", err)
	}
	fmt.Fprintln(p.ErrOut, "electionctl:", inOneLine(inspect.Printable(err.Error())))
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	return Failed
}

// checked remembers the first error, because incomplete output must not look like success.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Command returns the root command.
func (p *Program) Command() *cobra.Command {
	p.flags = genericclioptions.NewConfigFlags(true)
	p.flags.WrapConfigFn = p.wrap
	root := &cobra.Command{
		Use:         "electionctl",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name()},
		Short:       "Show elections and change their leaders",
		Long: `Show the leader of each election, its revision, the reason, and the other candidates. Predict the effect of a change of the
default revision. Move leadership to another candidate. Commands that only read also work for elections of istiod and client-go.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return withCode(misused, "%w; see %s --help", err, cmd.CommandPath())
	})
	p.flags.AddFlags(root.PersistentFlags())
	hideRare(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "reads", Title: "Read:"},
		&cobra.Group{ID: "admin", Title: "Change the leader:"},
		&cobra.Group{ID: "cluster", Title: "Cluster:"},
	)
	p.add(root, "reads", p.list(), p.watch(), p.history(), p.explain(), p.plan(), p.audit())
	p.add(root, "admin", p.transfer(), p.stepDown(), p.pause(), p.resume(), p.cancel())
	p.add(root, "cluster", p.doctor(), p.defaults(), p.fence(), p.page(), p.run(), p.version())
	return root
}

func (p *Program) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			safe{p.Out}.line("electionctl %s", strings.TrimPrefix(bootstrap.ReadBuild().String(), "pilot "))
			return nil
		},
	}
}

// hideRare hides rarely used kubectl flags from the help.
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

// name returns the command as the user typed it. kubectl can run it as a plugin.
func name() string {
	if strings.Contains(os.Args[0], "kubectl-election") {
		return "kubectl election"
	}
	return "electionctl"
}

// onlyCommands rejects arguments of a command that has only subcommands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if suggested := usedByKubectl[args[0]]; suggested != "" && !cmd.HasParent() {
		return withCode(misused, "unknown command %q; use %s", args[0], strings.ReplaceAll(suggested, "electionctl", name()))
	}
	return withCode(misused, "unknown command %q; see %s --help", args[0], cmd.CommandPath())
}

// usedByKubectl has the command to use instead of a verb of kubectl.
var usedByKubectl = map[string]string{
	"describe": "electionctl explain NAME",
	"status":   "electionctl explain NAME",
	"show":     "electionctl explain NAME",
	"events":   "electionctl history NAME",
	"logs":     "kubectl logs POD; electionctl list shows the Pod of each leader",
	"top":      "electionctl page POD, or the metrics (docs/monitoring.md)",
	"wait":     "electionctl watch NAME",
	"delete":   "electionctl step-down NAME to change the leader; to remove the lock, stop its candidates and use kubectl delete",
	"edit":     "electionctl transfer, step-down, pause or resume; the candidates own the lock",
	"patch":    "electionctl transfer, step-down, pause or resume; the candidates own the lock",
	"set":      "electionctl default set REVISION",
	"apply":    "electionctl fence install; the candidates create the locks",
	"create":   "electionctl fence install; the candidates create the locks",
	"rollout":  "electionctl plan --default-revision REVISION, then electionctl default set REVISION",
	"auth":     "electionctl doctor, which checks the permissions",
	"diff":     "electionctl plan --default-revision REVISION",
}

// exactly validates the number of arguments.
func exactly(what ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(what):
			return withCode(misused, "missing argument %s: %s", what[len(args)], cmd.UseLine())
		case len(args) > len(what):
			return withCode(misused, "unexpected argument %q: %s", args[len(what)], cmd.UseLine())
		}
		return nil
	}
}
