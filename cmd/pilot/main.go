package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"istio.io/pkg/log"

	"incumbent.dev/incumbent/cmd/fencecommand"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

func main() {
	os.Exit(run(programs{serve: supervised}))
}

// run returns the exit code, so that deferred calls run before main exits.
func run(start programs) int {
	// The first signal cancels the context. A second signal kills the process.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	defer log.Sync() //nolint:errcheck // standard output cannot always be synced
	if err := command(start).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "pilot:", err)
		return 1
	}
	return 0
}

// programs has the functions that the commands call. fence is optional.
type programs struct {
	serve func(context.Context, bootstrap.Config) error
	fence fencecommand.Run
}

// command returns the root command. The environment has the defaults of the flags. Only the server fails if the
// environment is invalid.
func command(start programs) *cobra.Command {
	flags, wrong := features.FromEnv()
	root := &cobra.Command{
		Use:           "pilot",
		Short:         "A control plane that can run in several revisions concurrently",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetGlobalNormalizationFunc(istioNames)
	root.AddCommand(
		serverCommand(flags, wrong, start.serve), witnessCommand(flags), fencecommand.Command(fencecommand.Options{Run: start.fence}),
		featuresCommand(), versionCommand(),
	)
	return root
}
