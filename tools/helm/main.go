// Command helm is Helm, so that a clone needs no other installation.
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

// run returns the exit code. Cobra has printed the error.
func run() int {
	// The field manager must not depend on the file name.
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
