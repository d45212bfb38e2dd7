package main

import (
	"context"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/cmd/fencecommand"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
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

// supervised runs a server as the child of its witness. A child does not receive signals that arrived before its start.
func supervised(ctx context.Context, config bootstrap.Config) error {
	if ctx.Err() == nil {
		if err := bootstrap.Supervise(config); err != nil {
			return err
		}
	}
	return serve(ctx, config)
}

// serverCommand runs a server. Flags override the environment.
func serverCommand(env features.Features, wrong error, run func(context.Context, bootstrap.Config) error) *cobra.Command {
	config := bootstrap.Config{
		Config: leaderelection.Config{Disabled: !env.EnableLeaderElection}, DisableGate: !env.EnableWriteGate, Fence: env.EnableWriteFence,
		DisableMember: !env.EnableMemberLease, PodUID: env.PodUID, Coordinator: env.EnableCoordinator,
		IngressNamespace: env.IngressNamespace,
		OldestEmulation:  env.EnableOldestEmulationVersion, EmulationVersion: env.EmulationVersion,
		DisableGatewayAPI: !env.EnableGatewayAPI, DisableGatewayStatus: !env.EnableGatewayAPIStatus,
		DisableGatewayDeployment: !env.EnableGatewayAPIDeploymentController, DisableGatewayClass: !env.EnableGatewayAPIGatewayClassController,
	}
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
				config.PodUID = "" // the garbage collector deletes objects with an owner of another name
			}
			config.ExitOnStuckDrain = true
			return run(cmd.Context(), config)
		},
	}
	bind(cmd, &config, env)
	logging.declare(cmd.Flags())
	return cmd
}

// bind adds the flags.
func bind(cmd *cobra.Command, config *bootstrap.Config, env features.Features) {
	f := cmd.Flags()
	fencecommand.Cluster(f, &config.Kubernetes, env)
	f.StringVar(&config.RemoteKubeconfig, "remote-kubeconfig", "", "kubeconfig file of a remote cluster that gets the CA bundle too. The election takes place in the namespace of the same name there; control planes of that cluster have higher rank")
	f.Float32Var(&config.QPS, "kube-qps", 40, "requests per second of all controllers to each API server; negative for no limit. Elections are not limited")
	f.IntVar(&config.Burst, "kube-burst", 60, "burst of requests of all controllers to each API server")
	f.StringVar(&config.Namespace, "namespace", env.PodNamespace, "namespace of the control plane and its locks (POD_NAMESPACE)")
	f.StringVar(&config.Identity, "identity", env.PodName, "identity of this process in elections, unique among live processes (POD_NAME)")
	f.StringVar(&config.Revision, "revision", env.Revision, "revision of the control plane; empty means default (REVISION)")
	f.StringVar(&config.ClusterID, "cluster-id", env.ClusterID, "name of the cluster, for the log (CLUSTER_ID)")
	f.StringVar(&config.Address, "address", ":15014", "listen address for /healthz, /readyz, /metrics and /debug/elections")
	f.StringVar(&config.DebugAddress, "debug-address", "127.0.0.1:15016", "listen address for the elections page, /debug/elections; empty for no page. Use kubectl port-forward to open it")
	f.BoolVar(&config.Profiling, "pprof", false, "serve Go profiles at --address under /debug/pprof/. They contain internals of the process, so restrict access to the address")
	f.StringVar(&config.CABundle, "ca-bundle", "", "file of PEM certificates to copy to every namespace; changes of the file are applied")
	f.StringArrayVar(&config.DiscoverySelectors, "discovery-selector", nil, "label selector of namespaces that get the CA bundle; can be repeated (default all namespaces)")
	f.StringSliceVar(&config.ExcludedNamespaces, "excluded-namespaces", nil, "namespaces without the CA bundle (default kube-system, kube-public, kube-node-lease, local-path-storage)")
	f.StringVar(&config.IngressMode, "ingress-controller-mode", "STRICT", "Ingresses that get a status: OFF (none), STRICT (the class only) or DEFAULT (also without a class)")
	f.StringVar(&config.IngressClass, "ingress-class", "istio", "value of the annotation kubernetes.io/ingress.class. An IngressClass matches by its controller, istio.io/ingress-controller")
	f.StringVar(&config.IngressService, "ingress-service", "", "Service with the addresses for Ingresses, as NAME or NAMESPACE/NAME. The default namespace is K8S_INGRESS_NS or --namespace (default istio-ingressgateway)")
	f.StringVar(&config.IngressSelector, "ingress-selector", "", "value of the label istio of Pods; Ingresses get the addresses of their nodes, instead of those of a Service")
	f.StringSliceVar(&config.GatewayObjects, "gateway-objects", nil, "objects that deployed Gateways get: podDisruptionBudget (one Pod at a time, with two or more replicas) and networkPolicy (only the ports of the Gateway)")
	f.StringSliceVar(&config.GatewayOverlayFields, "gateway-overlay-fields", nil, "more fields that the overlays of Gateways may change, such as deployment.spec.template.spec.volumes. With some of them the author of a Gateway gets the rights of other accounts, files of nodes, or addresses of others")
	f.StringVar(&config.LockType, "lock", env.ElectionLock, "type of the locks: configmap, lease, or multi (both, while migrating) (LEADER_ELECTION_LOCK)")
	f.StringVar(&config.ElectionStrategy, "election-strategy", env.ElectionStrategy, "strategy that a coordinator uses to choose the leaders of shared elections, for example incumbent.dev/DefaultRevision; empty for no coordination (ELECTION_STRATEGY)")
	f.DurationVar(&config.LeaseDuration, "lease-duration", env.LeaseDuration, "time after which a candidate acquires a lock that is not renewed (LEADER_ELECTION_LEASE_DURATION)")
	f.DurationVar(&config.RenewDeadline, "renew-deadline", env.RenewDeadline, "how long a leader may act after it sent its last acknowledged renewal (LEADER_ELECTION_RENEW_DEADLINE)")
	f.DurationVar(&config.RetryPeriod, "retry-period", env.RetryPeriod, "interval between renewals of a leader (LEADER_ELECTION_RETRY_PERIOD)")
	f.StringVar(&config.WitnessMode, "witness", bootstrap.WitnessParent, "process that releases the locks when this process has ended without a release: parent (this command starts itself as its child), socket (another container) or none")
	f.StringVar(&config.WitnessSocket, "witness-socket", "", "socket of pilot witness, with --witness=socket")
	f.DurationVar(&config.StopLimit, "shutdown-timeout", 0, "time for controllers to stop before their locks are released (default 20s)")
}
