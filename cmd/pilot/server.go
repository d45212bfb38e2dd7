package main

import (
	"context"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

// serve runs a server until ctx ends.
func serve(ctx context.Context, config bootstrap.Config) error {
	server, err := bootstrap.New(config)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// serverCommand runs a server with the environment's values, and flags before them.
func serverCommand(env features.Features, wrong error, run func(context.Context, bootstrap.Config) error) *cobra.Command {
	config := bootstrap.Config{
		DisableElections: !env.EnableLeaderElection, DisableGate: !env.EnableWriteGate, Fence: env.EnableWriteFence,
		DisableMember: !env.EnableMemberLease, PodUID: env.PodUID, Coordinator: env.EnableCoordinator,
		OldestEmulation: env.EnableOldestEmulationVersion, EmulationVersion: env.EmulationVersion,
		DisableGatewayAPI: !env.EnableGatewayAPI, DisableGatewayStatus: !env.EnableGatewayAPIStatus,
		DisableGatewayDeployment: !env.EnableGatewayAPIDeploymentController, DisableGatewayClass: !env.EnableGatewayAPIGatewayClassController,
	}
	config.Kubernetes.List = env.Kubeconfig
	var logging logging
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run one replica of one revision",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wrong != nil {
				return wrong
			}
			if err := logging.configure(); err != nil {
				return err
			}
			if config.Identity != env.PodName {
				config.PodUID = "" // the garbage collector would delete what belongs to a Pod of another name
			}
			config.ExitOnStuckDrain = true
			return run(cmd.Context(), config)
		},
	}
	bind(cmd, &config, env)
	logging.declare(cmd.Flags())
	return cmd
}

// bind declares the flags.
func bind(cmd *cobra.Command, config *bootstrap.Config, env features.Features) {
	f := cmd.Flags()
	f.StringVar(&config.Kubernetes.Path, "kubeconfig", "", "kubeconfig file; without it KUBECONFIG, and without that the pod's service account")
	f.StringVar(&config.Kubernetes.Context, "context", "", "context of the kubeconfig; without it the current one")
	f.StringVar(&config.RemoteKubeconfig, "remote-kubeconfig", "", "kubeconfig file of a remote cluster, whose namespaces get the CA bundle, too; it is elected for there, in the namespace of the same name, and that cluster's own control planes go first")
	f.Float32Var(&config.QPS, "kube-qps", 40, "requests a second to each API server for the work of all controllers together; negative for no limit. Elections are not limited")
	f.IntVar(&config.Burst, "kube-burst", 60, "requests at once to each API server for the work of all controllers together")
	f.StringVar(&config.Namespace, "namespace", env.PodNamespace, "the control plane's namespace, with its locks (POD_NAMESPACE)")
	f.StringVar(&config.Identity, "identity", env.PodName, "this process's name in elections, unique among live processes (POD_NAME)")
	f.StringVar(&config.Revision, "revision", env.Revision, "the control plane's revision; empty means default (REVISION)")
	f.StringVar(&config.ClusterID, "cluster-id", env.ClusterID, "the cluster's name, for the log (CLUSTER_ID)")
	f.StringVar(&config.Address, "address", ":15014", "where to serve /healthz, /readyz, /metrics and /debug/elections")
	f.StringVar(&config.DebugAddress, "debug-address", "127.0.0.1:15016", "where to serve the elections page, /debug/elections, for people (kubectl port-forward reaches it); empty for no page")
	f.BoolVar(&config.Profiling, "pprof", false, "serve Go's profiles at --address, under /debug/pprof/; they tell much about the process, so keep the address to yourself")
	f.StringVar(&config.CABundle, "ca-bundle", "", "file of PEM certificates to spread to every namespace; it is followed when it changes")
	f.StringSliceVar(&config.ExcludedNamespaces, "excluded-namespaces", nil, "namespaces without the CA bundle (default kube-system, kube-public, kube-node-lease, local-path-storage)")
	f.StringVar(&config.IngressMode, "ingress-controller-mode", "STRICT", "which Ingresses get a status: OFF (none), STRICT (those of the class) or DEFAULT (those without a class, too)")
	f.StringVar(&config.IngressClass, "ingress-class", "istio", "the class: the annotation kubernetes.io/ingress.class. An IngressClass counts by its controller, istio.io/ingress-controller")
	f.StringVar(&config.IngressService, "ingress-service", "istio-ingressgateway", "the Service of --namespace whose addresses the Ingresses get")
	f.StringVar(&config.Lock, "lock", env.ElectionLock, "kind of lock objects: configmap, lease, or multi to move from one to the other (LEADER_ELECTION_LOCK)")
	f.StringVar(&config.ElectionStrategy, "election-strategy", env.ElectionStrategy, "by which strategy a coordinator chooses who leads the elections that all revisions share, such as incumbent.dev/DefaultRevision; empty: the candidates settle it (ELECTION_STRATEGY)")
	f.DurationVar(&config.LeaseDuration, "lease-duration", env.LeaseDuration, "how long a candidate waits for a silent leader (LEADER_ELECTION_LEASE_DURATION)")
	f.DurationVar(&config.RenewDeadline, "renew-deadline", env.RenewDeadline, "how long a leader acts after its last acknowledged renewal (LEADER_ELECTION_RENEW_DEADLINE)")
	f.DurationVar(&config.RetryPeriod, "retry-period", env.RetryPeriod, "how often a leader renews (LEADER_ELECTION_RETRY_PERIOD)")
	f.DurationVar(&config.ShutdownTimeout, "shutdown-timeout", 0, "how long controllers may take to stop while their locks are kept (default 20s)")
}
