//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// runner runs the program in each term.
type runner struct {
	Config
	path  string
	clock *k8sleaderelection.Clock
	open  atomic.Bool  // the program may act
	group atomic.Int64 // process group of the running program; 0: none
	ended atomic.Pointer[Status]
	stop  context.CancelFunc
}

// Run takes part in the election until ctx ends, and runs the program while this process leads. It returns the status of the last
// run, or nil if the program did not run. With Once, Run also returns after the first run.
func Run(ctx context.Context, config Config) (*Status, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &runner{Config: config, clock: k8sleaderelection.NewClock(nil), stop: stop}
	var err error
	if r.path, err = exec.LookPath(config.Program[0]); err != nil {
		return nil, InvalidError{fmt.Errorf("program %s: %w", config.Program[0], err)}
	}
	elector, err := r.elector()
	if err != nil {
		return nil, InvalidError{fmt.Errorf("election %s: %w", config.Election, err)}
	}
	forward := make(chan os.Signal, 1)
	signal.Notify(forward, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for s := range forward {
			r.signal(s.(syscall.Signal))
		}
	})
	err = elector.Campaign(ctx)
	signal.Stop(forward)
	close(forward)
	forwarding.Wait()
	status := r.ended.Load()
	if errors.As(err, new(programError)) {
		err = nil // the status has it
	}
	return status, err
}

func (r *runner) elector() (*k8sleaderelection.LeaderElector, error) {
	client, err := kubernetes.NewForConfig(kube.FreshConnections(k8sresourcelock.ClientConfig(r.Client)))
	if err != nil {
		return nil, err
	}
	config := k8sleaderelection.LeaderElectionConfig{
		Lock: &k8sresourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Election}, Client: client.CoordinationV1(),
			LockConfig: k8sresourcelock.ResourceLockConfig{Identity: r.Identity},
		},
		LeaseDuration: r.LeaseDuration, RenewDeadline: r.RenewDeadline, RetryPeriod: r.RetryPeriod,
		StopLimit:       r.Grace + killTime,
		ReleaseOnCancel: true, Name: r.Election, Clock: r.clock, Gate: r, Logger: r.Logger,
		RunFunctions: []func(context.Context) error{r.term}, RunFunctionNames: []string{r.Program[0]},
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return k8sleaderelection.NewLeaderElector(config)
}

// killTime is the time for the kernel to end a killed process group.
const killTime = 5 * time.Second

// Set implements k8sleaderelection.Gate. At the end of the validity the elector closes the gate: the program must not act any more,
// even if it hangs.
func (r *runner) Set(_ k8sleaderelection.Term, end k8sleaderelection.Validity) {
	// The program may be starting: then exec sees that the gate is closed.
	if r.open.Store(end != (k8sleaderelection.Validity{})); !r.open.Load() {
		r.signal(syscall.SIGKILL)
	}
}

// Drain implements k8sleaderelection.Gate. The program has ended.
func (r *runner) Drain() {}

// signal sends a signal to all processes of the program.
func (r *runner) signal(s syscall.Signal) {
	if group := int(r.group.Load()); group > 0 {
		_ = syscall.Kill(-group, s)
	}
}

// programError ends a term after the program has ended.
type programError struct{ Status }

func (e programError) Error() string {
	return "program ended with " + e.String() + "; it runs again in the next term, unless --once is set"
}

// term runs the program once.
func (r *runner) term(ctx context.Context) error {
	term, _ := k8sleaderelection.TermFromContext(ctx)
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() { ended <- r.exec(term, started) }()
	if err := <-started; err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	var err error
	select {
	case err = <-ended:
		if r.Once {
			r.stop()
		}
		return err // the leader steps down
	case <-ctx.Done():
	}
	r.Logger.Info("stopping the program", "cause", context.Cause(ctx), "grace", r.Grace)
	r.signal(syscall.SIGTERM)
	timer := time.NewTimer(r.Grace)
	defer timer.Stop()
	select {
	case err = <-ended:
	case <-timer.C:
		r.signal(syscall.SIGKILL)
		err = <-ended
	}
	if r.Once {
		r.stop()
	}
	return err
}

// environment returns the environment of the program.
func (r *runner) environment(term k8sleaderelection.Term) []string {
	return append(os.Environ(),
		"ELECTION_NAME="+r.Election, "ELECTION_NAMESPACE="+r.Namespace, "ELECTION_IDENTITY="+r.Identity,
		"ELECTION_TRANSITIONS="+strconv.Itoa(term.Transitions), "ELECTION_TOKEN="+strconv.FormatUint(term.Token, 10),
	)
}
