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
	os.Exit(run())
}

// run is main with deferred calls that run.
func run() int {
	// The first signal ends the context; after it, a second one kills the process as ever.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	defer log.Sync() //nolint:errcheck // standard output cannot always be synced, and the process ends
	if err := command(programs{serve: serve, fence: fencecommand.Do}).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "pilot:", err)
		return 1
	}
	return 0
}

// programs is what the command line starts.
type programs struct {
	serve func(context.Context, bootstrap.Config) error
	fence fencecommand.Run
}

// command puts the command line together. What the environment says are the flags'
// defaults; what is wrong with it matters to the server alone.
func command(start programs) *cobra.Command {
	flags, wrong := features.FromEnv()
	root := &cobra.Command{
		Use:           "pilot",
		Short:         "A control plane that runs in several revisions at once",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetGlobalNormalizationFunc(istioNames)
	root.AddCommand(
		serverCommand(flags, wrong, start.serve), fencecommand.Command(fencecommand.Options{Features: flags, Wrong: wrong, Run: start.fence}),
		featuresCommand(), versionCommand(),
	)
	return root
}
