package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

const usage = `usage: playground run|demo|upgrade [flags]

run      starts a control plane in two revisions and shows its elections until Ctrl-C
demo     plays a script of flips and failures, and fails if an outcome is wrong
upgrade  upgrades from one revision to the other and back by the charts, under load, and has the audit log judge it

flags:
`

// settings are what the command line says.
type settings struct {
	demo, upgrade bool
	// kubeconfig of a cluster to use, "" to start one.
	kubeconfig string
	// programs is the folder of kubectl and the cluster's own programs; pilot is the
	// server's, and dataplane what stands in for the proxy of Gateways.
	programs, pilot, dataplane string
	// helmProgram installs what charts is the folder of.
	helmProgram, charts string
	timing              timing
	// coordinated has a coordinator choose who leads the shared elections. Its demo has replicas of two versions: canary's are older's.
	coordinated bool
	older       string
	// lawless runs the servers without elections.
	lawless bool

	// What follows is for tests of the demo itself: unfenced leaves the fence out, ungated the gate,
	// uncoordinated whoever could coordinate, and only is the one act after the first that is played.
	unfenced, ungated, uncoordinated bool
	only                             int
}

// timing is how the pilots' elections are set up.
type timing struct {
	lease, renew, retry time.Duration
}

// quick lets one watch a lease run out.
var quick = timing{lease: 6 * time.Second, renew: 4 * time.Second, retry: time.Second}

func main() {
	set, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "playground:", err)
		}
		os.Exit(2)
	}
	// What client-go says of reads that end with their context would stand in the middle of the table or the
	// story. What goes wrong comes back as an error.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends this process as ever, and the others with it
	if err := play(ctx, set, &screen{out: os.Stdout, size: terminalSize(os.Stdout)}); err != nil {
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
	var set settings
	bin := "bin"
	if self, err := os.Executable(); err == nil {
		bin = filepath.Dir(self)
	}
	programs := bin
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		programs = assets
	}
	flags.StringVar(&set.kubeconfig, "kubeconfig", "", "use this cluster instead of starting one")
	flags.StringVar(&set.programs, "programs", programs, "folder of etcd, kube-apiserver, kube-controller-manager and kubectl")
	flags.StringVar(&set.pilot, "pilot", filepath.Join(bin, "pilot"), "the server to run")
	flags.StringVar(&set.dataplane, "dataplane", filepath.Join(bin, "dataplane"), "the stand-in for a proxy that the Pods of Gateways run")
	flags.StringVar(&set.helmProgram, "helm", filepath.Join(bin, "helm"), "the program that installs charts")
	flags.StringVar(&set.charts, "charts", filepath.Join(bin, "..", "deploy", "charts"), "folder of the charts")
	flags.BoolVar(&set.coordinated, "coordinated", false, "have a coordinator choose who leads, among replicas of two versions (docs/coordination.md)")
	flags.StringVar(&set.older, "older", filepath.Join(bin, "pilot-1.1.0"), "with --coordinated, the server of an older version, which canary runs")
	flags.DurationVar(&set.timing.lease, "lease-duration", quick.lease, "the elections' lease duration")
	flags.DurationVar(&set.timing.renew, "renew-deadline", quick.renew, "their renew deadline")
	flags.DurationVar(&set.timing.retry, "retry-period", quick.retry, "their retry period")
	flags.BoolVar(&set.lawless, "disable-elections", false, "run the servers without elections: all work at once, which a demo reports as wrong")
	if len(args) == 0 {
		flags.Usage()
		return set, errors.New("say run, demo or upgrade")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return set, err
	}
	switch args[0] {
	case "run":
	case "demo":
		set.demo = true
	case "upgrade":
		set.upgrade = true
		if set.kubeconfig != "" || set.lawless {
			return set, errors.New("an upgrade is on a cluster of its own, with elections: leave out --kubeconfig and --disable-elections")
		}
	default:
		flags.Usage()
		return set, fmt.Errorf("there is no command %q", args[0])
	}
	if set.coordinated && (set.upgrade || set.lawless) {
		return set, errors.New("--coordinated is for run and demo, with elections: leave out --disable-elections")
	}
	if flags.NArg() > 0 {
		return set, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return set, set.timing.check()
}

// check asks an election whether it would do with the timing: the servers would not start, and say
// so in their logs only.
func (t timing) check() error {
	client, err := kube.NewClient(&rest.Config{Host: "https://localhost"})
	if err != nil {
		return err
	}
	_, err = leaderelection.New(client, leaderelection.Config{
		Namespace: systemNamespace, Identity: "nobody", ElectionID: witnessed, Revision: "stable",
		LeaseDuration: t.lease, RenewDeadline: t.renew, RetryPeriod: t.retry,
	})
	if err != nil {
		return fmt.Errorf("--lease-duration, --renew-deadline, --retry-period: %w", err)
	}
	return nil
}

// terminalSize tells the size of a terminal whenever it is asked; nil for what is none.
func terminalSize(out *os.File) func() (width, height int) {
	size := func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24 // it is gone, or does not know
		}
		return width, height
	}
	if !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return size
}

// play raises the stage, plays on it, and takes it down whatever happened.
func play(ctx context.Context, set settings, out *screen) error {
	if set.upgrade {
		return playUpgrade(ctx, set, out)
	}
	playCtx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	began := time.Now()
	s, err := raise(playCtx, set, out, abandon)
	if err == nil && set.demo {
		err = playDemo(playCtx, s)
	} else if err == nil {
		err = playRun(playCtx, s)
	}
	if ctx.Err() != nil && !set.demo {
		err = nil // Ctrl-C is how a run ends
	}
	if part := (broken{}); errors.As(context.Cause(playCtx), &part) {
		err = errors.Join(err, part)
	}
	ending := time.Now()
	out.print("\nEnding everything …\n")
	err = errors.Join(err, s.end(playCtx))
	out.print(fmt.Sprintf("Everything has ended, in %s; %s in all.\n", round(time.Since(ending)), round(time.Since(began))))
	return err
}
