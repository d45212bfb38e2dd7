package fencecommand

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

// Run does what a verb says; Do is the real one.
type Run func(ctx context.Context, verb string, config install.Config, out io.Writer) error

// Options are what the program around the command brings.
type Options struct {
	// Features are the flags' defaults, and Wrong is what is wrong with them.
	Features features.Features
	Wrong    error
	Run      Run
	// Connect says where the API server is, and in which namespace the control plane, where the
	// program has flags of its own for that. nil: the command has them.
	Connect func(config *install.Config) error
}

// Command is what an administrator does about the fence.
func Command(options Options) *cobra.Command {
	env := options.Features
	config := &install.Config{Elections: bootstrap.FencedElections(bootstrap.Config{
		DisableGatewayAPI: !env.EnableGatewayAPI, DisableGatewayDeployment: !env.EnableGatewayAPIDeploymentController,
	})}
	config.Kubernetes.List, config.Namespace = env.Kubeconfig, env.PodNamespace
	root := &cobra.Command{
		Use:   "fence",
		Short: "Have the API server refuse the writes of whoever does not lead",
		// Without these, a verb that is misspelt would be answered with the help and exit code 0.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	options.flags(root.PersistentFlags(), config)

	does := options.verb(config)
	installCmd := does("install", "Put the fence up or bring it up to date, and wait until it stands")
	installCmd.Flags().DurationVar(&config.Wait, "wait", 30*time.Second, "how long to wait until the fence stands; 0 for not at all")
	installCmd.Flags().BoolVar(&config.TakeOver, "take-over", false, "take locks over that another set guards, or that this one guarded for other service accounts")
	verify := does("verify", "Try it with dry-run writes as the leader and as others, and say what holds")
	verify.Flags().BoolVar(&config.Strict, "strict", false, "accept nothing but what was tried and held: no mode but deny, and a leader to try it as")
	for _, cmd := range []*cobra.Command{installCmd, verify} {
		cmd.Flags().BoolVar(&config.AllowUnclear, "allow-unclear", false, "accept that something could not be tried")
	}
	report := does("report", "Say what was refused, or would be in mode deny, by an API server's audit log")
	report.Flags().StringVar(&config.AuditLog, "audit-log", "-", "the audit log, one event as JSON in each line; - is the standard input")
	for _, cmd := range []*cobra.Command{installCmd, verify, report} {
		cmd.Flags().StringVarP(&config.Output, "output", "o", "table", "table, json or yaml")
	}
	root.AddCommand(
		does("render", "Print the policies and bindings as YAML"), installCmd, verify, report,
		does("remove", "Take the fence away; what keeps the API server's view of locks alive stays"),
	)
	return root
}

// flags are those that all verbs have.
func (o Options) flags(f *pflag.FlagSet, config *install.Config) {
	if o.Connect == nil {
		f.StringVar(&config.Kubernetes.Path, "kubeconfig", "", "kubeconfig file; without it KUBECONFIG, and without that the pod's service account")
		f.StringVar(&config.Kubernetes.Context, "context", "", "context of the kubeconfig; without it the current one")
		f.StringVar(&config.Namespace, "namespace", o.Features.PodNamespace, "the control plane's namespace, with its locks (POD_NAMESPACE)")
	}
	f.StringVar(&config.Set, "set", "", "name of this fence in the cluster (default the namespace's)")
	f.StringVarP(&config.File, "file", "f", "", "YAML file of declarations; without it, the elections of pilot server, by the flags below")
	f.StringVar(&config.Lock, "lock", o.Features.ElectionLock, "kind of lock objects: configmap or lease (LEADER_ELECTION_LOCK)")
	f.StringSliceVar(&config.ServiceAccounts, "service-account", nil, "the servers' service accounts, as name or namespace/name; {revision} stands for each revision (default pilot-{revision})")
	f.StringSliceVar(&config.Others, "other-service-account", nil, "service accounts that may hold the locks, too, as name or namespace/name, where a * at the end stands for any rest; what they write is for another fence to judge")
	f.StringSliceVar(&config.Revisions, "revisions", nil, "the revisions that there are, for elections within one and for {revision}")
	f.StringSliceVar(&config.Coordinators, "coordinator", nil, "users that may write candidates in as holders, such as system:apiserver")
	f.StringVar(&config.Mode, "mode", "", "what becomes of writes that are found wrong: deny, warn or audit (default what each declaration says, or deny)")
	f.StringSliceVar(&config.APIServers, "api-server", nil, "addresses of further API servers, such as https://10.0.0.2:6443: what is installed or removed has to be seen by each, and each is asked (default those that the Service default/kubernetes lists)")
	f.BoolVar(&config.Coordinated, "coordinated", false, "a coordinator chooses who leads the elections that all revisions share, as with pilot server --election-strategy; with --lock=lease")
	f.BoolVar(&config.WithoutLockGuard, "without-lock-guard", false, "leave the locks themselves to RBAC")
}

// verb makes the command of a verb.
func (o Options) verb(config *install.Config) func(verb, short string) *cobra.Command {
	return func(verb, short string) *cobra.Command {
		return &cobra.Command{Use: verb, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Wrong != nil {
				return o.Wrong
			}
			if o.Connect != nil {
				if err := o.Connect(config); err != nil {
					return err
				}
			}
			return o.Run(cmd.Context(), verb, *config, cmd.OutOrStdout())
		}}
	}
}

// Do does what a verb says.
func Do(ctx context.Context, verb string, config install.Config, out io.Writer) error {
	switch verb {
	case "render":
		return config.Render(out)
	case "install":
		return config.Install(ctx, out)
	case "verify":
		return config.Verify(ctx, out)
	case "report":
		return config.Report(out)
	case "remove":
		return config.Remove(ctx, out)
	}
	return fmt.Errorf("there is no pilot fence %s", verb)
}
