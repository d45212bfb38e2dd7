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
	"incumbent.dev/incumbent/pkg/kube"
)

// Run executes a verb. Do is the default implementation.
type Run func(ctx context.Context, verb string, config install.Config, out io.Writer) error

// Options configure the command for a program.
type Options struct {
	// Run executes the verbs. The default is Do.
	Run Run
	// Connect sets the API server and the namespace of the control plane, if the program has its own flags for them.
	// If nil, the command adds such flags.
	Connect func(config *install.Config) error
}

// Command returns the command with its verbs. The environment has the defaults of the flags.
func Command(options Options) *cobra.Command {
	env, wrong := features.FromEnv()
	if options.Run == nil {
		options.Run = Do
	}
	config := &install.Config{Elections: bootstrap.FencedElections(bootstrap.Config{
		DisableGatewayAPI: !env.EnableGatewayAPI, DisableGatewayDeployment: !env.EnableGatewayAPIDeploymentController,
	})}
	config.Namespace = env.PodNamespace
	root := &cobra.Command{
		Use:   "fence",
		Short: "Make the API server reject writes from non-leaders",
		// Without Args and RunE, a misspelled verb would print the help and exit with code 0.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	options.flags(root.PersistentFlags(), config, env)

	does := options.verb(config, wrong)
	installCmd := does("install", "Install or update the fence and wait until it is in effect")
	installCmd.Flags().DurationVar(&config.Wait, "wait", 30*time.Second, "maximum time to wait until the fence is in effect; 0 does not wait and does not test it")
	installCmd.Flags().BoolVar(&config.Replace, "replace", false, "replace guards of another set for the same locks, or of this set for other service accounts")
	installCmd.Flags().BoolVar(&config.Stored, "stored", false, "install the declarations of the installed fence again, and ignore the flags for declarations except --mode")
	installCmd.Flags().BoolVar(&config.Keep, "keep", false, "do not check the service accounts of the leaders first, and keep a fence that its self-test rejects")
	verify := does("verify", "Check the fence with dry-run writes as the leader and as other pods")
	verify.Flags().BoolVar(&config.Strict, "strict", false, "require that every check was made and passed; needs mode deny and a leader")
	for _, cmd := range []*cobra.Command{installCmd, verify} {
		cmd.Flags().BoolVar(&config.AllowUnclear, "allow-unclear", false, "accept checks that could not be made")
		cmd.Flags().BoolVarP(&config.Verbose, "verbose", "v", false, "print checks that passed, too")
	}
	report := does("report", "Summarize rejected writes, and writes that mode deny would reject, from an audit log")
	report.Flags().StringVar(&config.AuditLog, "audit-log", "-", "audit log of an API server, one JSON event per line; - is standard input")
	for _, cmd := range []*cobra.Command{installCmd, verify, report} {
		cmd.Flags().StringVarP(&config.Output, "output", "o", "table", "output format: table, json or yaml")
	}
	root.AddCommand(
		does("render", "Print the policies and bindings as YAML"), installCmd, verify, report,
		does("remove", "Remove the fence; the incumbent-fence-keep policies stay"),
	)
	return root
}

// flags adds the flags of all verbs.
func (o Options) flags(f *pflag.FlagSet, config *install.Config, env features.Features) {
	if o.Connect == nil {
		Cluster(f, &config.Kubernetes, env)
		f.StringVar(&config.Namespace, "namespace", env.PodNamespace, "namespace of the control plane and its locks (POD_NAMESPACE)")
	}
	f.StringVar(&config.Set, "set", "", "name of this fence in the cluster (default the namespace)")
	f.StringVarP(&config.File, "file", "f", "", "YAML file with declarations (default the elections of pilot server)")
	f.StringVar(&config.Lock, "lock", env.ElectionLock, "kind of the lock objects: configmap, lease, or multi (both, while migrating) (LEADER_ELECTION_LOCK)")
	f.StringSliceVar(&config.ServiceAccounts, "service-account", nil, "service accounts of the servers, as name or namespace/name; {revision} is replaced by each revision (default pilot-{revision})")
	f.StringSliceVar(&config.Others, "other-service-account", nil, "further service accounts that may hold the locks, as name or namespace/name; a * at the end matches any suffix. Their other writes are not guarded")
	f.StringSliceVar(&config.Revisions, "revisions", nil, "revisions that exist, for elections per revision and for {revision}")
	f.StringSliceVar(&config.Coordinators, "coordinator", nil, "users that may nominate holders, such as system:apiserver")
	f.StringVar(&config.Mode, "mode", "", "treatment of violations: deny, warn or audit (default the mode of each declaration, or deny)")
	f.StringSliceVar(&config.APIServers, "api-server", nil, "addresses of further API servers to check, such as https://10.0.0.2:6443 (default the addresses of Service default/kubernetes)")
	f.BoolVar(&config.Coordinated, "coordinated", false, "a coordinator chooses the leaders of shared elections, as with pilot server --election-strategy; needs --lock=lease")
	f.BoolVar(&config.WithoutLockGuard, "without-lock-guard", false, "do not guard the lock objects")
}

// Cluster adds the flags that locate the API server.
func Cluster(f *pflag.FlagSet, to *kube.Source, env features.Features) {
	to.List, to.Flag = env.Kubeconfig, "--kubeconfig"
	f.StringVar(&to.Path, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, or the service account of the pod)")
	f.StringVar(&to.Context, "context", "", "context of the kubeconfig (default: the current context)")
}

// verb returns a function that creates the command of a verb.
func (o Options) verb(config *install.Config, wrong error) func(verb, short string) *cobra.Command {
	return func(verb, short string) *cobra.Command {
		return &cobra.Command{Use: verb, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if wrong != nil {
				return wrong
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

// Do executes a verb.
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
	return fmt.Errorf("unknown verb: pilot fence %s", verb)
}
