package main

import (
	"errors"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/cmd/fencecommand"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

// witnessCommand releases the locks of the servers that connect to its socket, after their processes have ended.
func witnessCommand(env features.Features) *cobra.Command {
	config := bootstrap.Config{}
	var logging logging
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Release the locks of a server in another container of the pod after its process has ended",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config.WitnessSocket == "" {
				return errors.New("--socket is missing: give a path on a volume that both containers mount")
			}
			if config.Identity == "" {
				return errors.New("--identity is missing: give the identity of the server, or set POD_NAME")
			}
			if err := logging.configure(); err != nil {
				return err
			}
			return bootstrap.ServeWitness(cmd.Context(), config)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.WitnessSocket, "socket", "", "path of the socket. Servers use it with --witness=socket --witness-socket=PATH")
	f.StringVar(&config.Identity, "identity", env.PodName, "identity of the server, whose terms are accepted (POD_NAME)")
	fencecommand.Cluster(f, &config.Kubernetes, env)
	f.StringVar(&config.RemoteKubeconfig, "remote-kubeconfig", "", "kubeconfig file of the remote cluster of the server")
	logging.declare(f)
	return cmd
}
