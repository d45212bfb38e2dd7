// Command helm is Helm's own, so that a clone needs no other one.
package main

import (
	"errors"
	"log/slog"
	"os"

	helmcmd "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec and OIDC credentials of a kubeconfig
)

func main() { os.Exit(run()) }

// run is main with an exit code. What Cobra has printed already is not said again.
func run() int {
	// Whatever the file is called, its fields in the cluster are those of every helm.
	kube.ManagedFieldsManager = "helm"
	command, err := helmcmd.NewRootCmd(os.Stdout, os.Args[1:], helmcmd.SetupLogging)
	if err != nil {
		slog.Error("helm", "err", err)
		return 1
	}
	err = command.Execute()
	var exit helmcmd.CommandError
	if errors.As(err, &exit) {
		return exit.ExitCode
	}
	if err != nil {
		return 1
	}
	return 0
}
