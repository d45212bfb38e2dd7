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

	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const usage = `Run a control plane of two revisions on a real API server on this machine.

Usage: playground COMMAND [flags]

Commands:
  run      Show the changes of the elections until Ctrl-C
  demo     Play a script of flips and failures, and check each step
  upgrade  Upgrade from one revision to the other and back, under load, and check the audit log

Flags:
`

// settings are the command and its flags.
type settings struct {
	command string
	rollout rollout.Options
	// withoutElections starts all controllers in all replicas.
	withoutElections bool
	// electionctl is the program that shows the elections.
	electionctl string
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
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
	set.usePrograms(filepath.Dir(self))
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go would log between the lines
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if err := play(ctx, set, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("playground", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&set.rollout.Coordinated, "coordinated", false, "let a coordinator choose the leaders, with replicas of two versions (docs/coordination.md)")
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
	case set.command == "upgrade" && (set.rollout.Coordinated || set.withoutElections):
		return set, errors.New("upgrade does not support --coordinated and --disable-elections")
	case set.rollout.Coordinated && set.withoutElections:
		return set, errors.New("--coordinated and --disable-elections exclude each other")
	}
	set.rollout.Lease, set.rollout.Renew, set.rollout.Retry = 6*time.Second, 4*time.Second, time.Second
	return set, nil
}

// usePrograms sets the programs in the folder bin of the repository, and the charts.
func (set *settings) usePrograms(bin string) {
	o := &set.rollout
	o.Pilot = filepath.Join(bin, "pilot")
	if o.Coordinated {
		o.Pilot = filepath.Join(bin, "pilot-1.2.0")
		o.Images = map[string]string{olderImage: filepath.Join(bin, "pilot-1.1.0")}
	}
	o.Dataplane = filepath.Join(bin, "dataplane")
	o.Helm = filepath.Join(bin, "helm")
	set.electionctl = filepath.Join(bin, "electionctl")
	o.Charts = filepath.Join(bin, "..", "deploy", "charts")
}

// checkFiles returns an error if a program or chart is missing. Package cluster checks its own programs.
func (set settings) checkFiles() error {
	o := set.rollout
	files := map[string]string{
		o.Pilot: "make build", o.Dataplane: "make build", o.Helm: "make build", filepath.Join(o.Charts, "pilot", "Chart.yaml"): "git checkout deploy/charts",
	}
	if set.command == "run" {
		files[set.electionctl] = "make build"
	}
	if o.Coordinated {
		files[o.Images[olderImage]] = "make pilot-versions"
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

// play starts the cluster, runs the command, and stops everything.
func play(ctx context.Context, set settings, out io.Writer) error {
	if err := set.checkFiles(); err != nil {
		return err
	}
	began := time.Now()
	o := set.rollout
	o.Seed = uint64(began.UnixNano())
	o.WithoutFence = set.withoutElections
	o.Log = func(text string) { fmt.Fprintf(out, "%s  %s\n", time.Now().Format("15:04:05.000"), text) }
	if set.command != "upgrade" {
		o.Gateways = 1
	}
	fmt.Fprintln(out, "Starting etcd, kube-apiserver and kube-controller-manager …")
	r, err := rollout.Start(ctx, o)
	if err == nil {
		switch set.command {
		case "run":
			err = run(ctx, set, r, out)
		case "demo":
			err = (&demo{Rollout: r, settings: set, out: out}).run(ctx)
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
	fmt.Fprint(out, "\nStopping everything …\n")
	err = errors.Join(err, r.End())
	fmt.Fprintf(out, "Stopped. It ran for %s.\n", time.Since(began).Round(time.Second))
	return err
}
