package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const usage = `Run a control plane of two revisions on a real API server on this machine.

Usage: playground COMMAND [flags]

Commands:
  run      Show the elections until Ctrl-C
  demo     Play a script of flips and failures, and check each step
  upgrade  Upgrade from one revision to the other and back, under load, and check the audit log

Flags:
`

// settings are the command and its flags.
type settings struct {
	command string
	rollout rollout.Options
	// older is the server program of the older version in a coordinated demo.
	older string
	// withoutElections starts all controllers in all replicas.
	withoutElections bool
}

func main() {
	set, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go would log into the table
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if err := play(ctx, set, newScreen(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	flags := flag.NewFlagSet("playground", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	bin := "bin"
	if self, err := os.Executable(); err == nil {
		bin = filepath.Dir(self)
	}
	programs := bin
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		programs = assets
	}
	var set settings
	o := &set.rollout
	flags.StringVar(&o.Programs, "programs", programs, "`folder` of etcd, kube-apiserver, kube-controller-manager and kubectl")
	flags.StringVar(&o.Pilot, "pilot", filepath.Join(bin, "pilot"), "server `program`")
	flags.StringVar(&o.Dataplane, "dataplane", filepath.Join(bin, "dataplane"), "`program` that replaces the proxy of Gateways")
	flags.StringVar(&o.Helm, "helm", filepath.Join(bin, "helm"), "Helm `program`")
	flags.StringVar(&o.Charts, "charts", filepath.Join(bin, "..", "deploy", "charts"), "`folder` of the charts")
	flags.BoolVar(&o.Coordinated, "coordinated", false, "let a coordinator choose the leaders, with replicas of two versions (docs/coordination.md)")
	flags.StringVar(&set.older, "older", filepath.Join(bin, "pilot-1.1.0"), "with --coordinated: server `program` of the older version")
	flags.DurationVar(&o.Lease, "lease-duration", 6*time.Second, "lease duration of the elections")
	flags.DurationVar(&o.Renew, "renew-deadline", 4*time.Second, "renew deadline of the elections")
	flags.DurationVar(&o.Retry, "retry-period", time.Second, "retry period of the elections")
	flags.BoolVar(&set.withoutElections, "disable-elections", false, "run without elections, so that all replicas write; the demo reports this as a failure")
	if len(args) > 0 && args[0] != "-h" && args[0] != "-help" && args[0] != "--help" {
		set.command = args[0]
		args = args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	switch {
	case set.command == "":
		flags.Usage()
		return set, errors.New("missing command: run, demo or upgrade")
	case set.command != "run" && set.command != "demo" && set.command != "upgrade":
		return set, fmt.Errorf("unknown command %q: use run, demo or upgrade", set.command)
	case flags.NArg() > 0:
		return set, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set.command == "upgrade" && (o.Coordinated || set.withoutElections):
		return set, errors.New("upgrade does not support --coordinated and --disable-elections")
	case o.Coordinated && set.withoutElections:
		return set, errors.New("--coordinated and --disable-elections exclude each other")
	}
	return set, checkTiming(*o)
}

// checkFiles returns an error if a program or chart is missing.
func (set settings) checkFiles() error {
	o := set.rollout
	files := map[string]string{
		o.Pilot: "make build", o.Dataplane: "make build", o.Helm: "make build", filepath.Join(o.Charts, "pilot", "Chart.yaml"): "git checkout deploy/charts",
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		files[filepath.Join(o.Programs, name)] = "make tools"
	}
	if o.Coordinated {
		files[set.older] = "make pilot-versions"
		files[o.Pilot] = "make build pilot-versions"
	}
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: run `%s`", file, files[file]))
		}
	}
	return errors.Join(errs...)
}

// checkTiming rejects a timing that the servers would reject.
func checkTiming(o rollout.Options) error {
	client, err := kube.NewClient(&rest.Config{Host: "https://localhost"})
	if err != nil {
		return err
	}
	_, err = leaderelection.New(client, leaderelection.Config{
		Namespace: rollout.Namespace, Identity: "check", ElectionID: rollout.NamespaceElection, Revision: "stable",
		LeaseDuration: o.Lease, RenewDeadline: o.Renew, RetryPeriod: o.Retry,
	})
	if err != nil {
		return fmt.Errorf("--lease-duration, --renew-deadline, --retry-period: %w", err)
	}
	return nil
}

// play starts the cluster, runs the command, and stops everything.
func play(ctx context.Context, set settings, out *screen) error {
	if err := set.checkFiles(); err != nil {
		return err
	}
	began := time.Now()
	o := set.rollout
	o.Seed = uint64(began.UnixNano())
	o.WithoutFence = set.withoutElections
	o.Log = func(text string) { out.line("%s", text) }
	if set.command != "upgrade" {
		o.Gateways = 1
	}
	if o.Coordinated {
		o.Images = map[string]string{olderImage: set.older}
	}
	out.print("Starting etcd, kube-apiserver and kube-controller-manager …\n")
	r, err := rollout.Start(ctx, o)
	if err == nil {
		switch set.command {
		case "run":
			err = run(ctx, set, r, out)
		case "demo":
			err = (&demo{Rollout: r, settings: set, screen: out}).run(ctx)
		case "upgrade":
			err = upgrade(ctx, r, out)
		}
	}
	if ctx.Err() != nil {
		err = nil // interrupted by the user
		if set.command != "run" {
			err = context.Cause(ctx)
		}
	}
	out.leave()
	out.print("\nStopping everything …\n")
	err = errors.Join(err, r.End())
	out.print(fmt.Sprintf("Stopped after %s.\n", time.Since(began).Round(time.Second)))
	return err
}
