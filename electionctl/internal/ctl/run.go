package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/electionctl/internal/run"
	"incumbent.dev/incumbent/internal/inspect"
)

// programEnded is the exit code of the program of the command run.
type programEnded int

func (e programEnded) Error() string { return fmt.Sprintf("program ended with exit code %d", int(e)) }

// run returns the command that runs a program while this process leads.
func (p *Program) run() *cobra.Command {
	var config run.Config
	cmd := &cobra.Command{
		Use:   "run --election NAME [flags] -- PROGRAM [ARGUMENT…]",
		Short: "Run a program while this process leads an election",
		Long: `Take part in an election whose lock is a Lease, and run a program, in any language, while this process leads. When the term ends, all
processes of the program receive SIGTERM, and SIGKILL after the grace period. Processes that are still running at the end of the validity
are killed immediately. The lock is released after they have ended. Then the next candidate runs its program.

The environment of the program has ELECTION_NAME, ELECTION_NAMESPACE, ELECTION_IDENTITY, ELECTION_TRANSITIONS and ELECTION_TOKEN, the
fencing token, which grows with each term. The exit code is the exit code of the program, or 128 plus the number of its signal. It is 126
if the program cannot be executed, and 127 if it does not exist. The user needs the permission to get, watch, create and update the Lease.`,
		Example: `  electionctl run --election backup -- ./backup.sh
  electionctl run --election importer --once --grace 30s -- python3 importer.py`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return withCode(misused, "missing argument PROGRAM: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config.Program = args
			return p.runProgram(cmd, config)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags of the program
	f.StringVar(&config.Election, "election", "", "name of the Lease (required)")
	f.StringVar(&config.Identity, "identity", "", "name of this candidate, unique among live processes (default: POD_NAME, or the host name and the process ID)")
	f.DurationVar(&config.Grace, "grace", 10*time.Second, "time between SIGTERM and SIGKILL")
	f.BoolVar(&config.Once, "once", false, "end after the first run; otherwise the program runs again in the next term")
	f.DurationVar(&config.LeaseDuration, "lease-duration", 15*time.Second, "time after which another candidate acquires a lock that is not renewed")
	f.DurationVar(&config.RenewDeadline, "renew-deadline", 10*time.Second, "how long the program may run after the last acknowledged renewal was sent")
	f.DurationVar(&config.RetryPeriod, "retry-period", 2*time.Second, "interval between renewals")
	return cmd
}

func (p *Program) runProgram(cmd *cobra.Command, config run.Config) error {
	if config.Election == "" {
		return withCode(misused, "--election is missing: give the name of the election")
	}
	if config.Grace < 0 {
		return withCode(misused, "--grace=%v is negative: give a positive duration", config.Grace)
	}
	clients, err := p.connect()
	if err != nil {
		return err
	}
	if err := clients.used(cmd.Context(), config.Election); err != nil {
		return err
	}
	host, _ := os.Hostname() // validated with the identity
	config.Identity = cmp.Or(config.Identity, os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))
	config.Client = clients.config
	config.Namespace = clients.at
	config.Logger = slog.New(slog.NewTextHandler(p.ErrOut, nil))
	code, err := run.Run(cmd.Context(), config)
	switch {
	case errors.As(err, new(run.InvalidError)):
		return withCode(cmp.Or(code, misused), "%w", err)
	case err == nil && code != 0:
		return programEnded(code)
	}
	return err
}

// used returns an error if the election has candidates that would not respect the Lease of run: candidates with another type of lock, or
// with revisions. A lock that cannot be read does not prevent run.
func (c *clients) used(ctx context.Context, election string) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	configMap, err := c.kube.CoreV1().ConfigMaps(c.at).Get(ctx, election, metav1.GetOptions{})
	if err == nil {
		if lock, ok := inspect.FromConfigMap(&configMap.ObjectMeta); ok {
			return withCode(Refused, "election %s has the ConfigMap %s/%s as lock, last held by %s, but run uses a Lease: two leaders would be active; use another --election",
				election, c.at, election, cmp.Or(inspect.Of(lock).Holder, "a process that released it"))
		}
	}
	lease, err := c.kube.CoordinationV1().Leases(c.at).Get(ctx, election, metav1.GetOptions{})
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if lock, ok := inspect.FromLease(lease); !ok || inspect.Of(lock).Key != "" {
		return withCode(Refused, "Lease %s/%s belongs to a control plane (holder %s): use another --election", c.at, election, cmp.Or(inspect.Of(lock).Holder, "unknown"))
	}
	return nil
}
