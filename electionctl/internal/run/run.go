//go:build unix

package run

import (
	"context"
	"encoding/binary"
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
	stop  context.CancelFunc

	mu         sync.Mutex
	end        int64 // of the validity, for the supervisor; 0: the program must not act
	supervisor *os.Process
	control    *os.File // to the supervisor

	code atomic.Int64 // the exit code of the last run
}

// Run takes part in the election until ctx ends, and runs the program while this process leads. It returns the exit code of the
// last run, or 128 plus the signal that ended it. With Once, Run also returns after the first run.
func Run(ctx context.Context, config Config) (code int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &runner{Config: config, clock: k8sleaderelection.NewClock(nil), stop: stop}
	if r.path, err = exec.LookPath(config.Program[0]); err != nil {
		return notStarted(err), InvalidError{fmt.Errorf("program %s: %w", config.Program[0], err)}
	}
	elector, err := r.elector()
	if err != nil {
		return 0, InvalidError{fmt.Errorf("election %s: %w", config.Election, err)}
	}
	if err := adoptOrphans(); err != nil { // of a supervisor that was killed
		return 0, err
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
	if errors.As(err, new(programError)) {
		err = nil // the exit code has it
	}
	return int(r.code.Load()), err
}

func (r *runner) elector() (*k8sleaderelection.LeaderElector, error) {
	client, err := kubernetes.NewForConfig(kube.FreshConnections(r.Client))
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

// killTime is the time for the kernel to end killed processes. A supervisor that has not ended after supervisorTime is killed: it may be stopped.
const (
	killTime       = 5 * time.Second
	supervisorTime = time.Second
)

// Set implements k8sleaderelection.Gate. At the end of the validity the elector closes the gate: the program must not act any more,
// even if it hangs.
func (r *runner) Set(_ k8sleaderelection.Term, end k8sleaderelection.Validity) {
	if r.set(deadline(end)); end == (k8sleaderelection.Validity{}) {
		r.kill()
	}
}

func (r *runner) set(end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != end {
		r.end = end
		r.send(end)
	}
}

// Drain implements k8sleaderelection.Gate. The program has ended.
func (r *runner) Drain() {}

// send sends a message to the supervisor. It does not block: the supervisor may be stopped.
func (r *runner) send(message int64) {
	raw, err := binary.Append(nil, binary.NativeEndian, message)
	if r.control == nil || err != nil {
		return
	}
	if control, err := r.control.SyscallConn(); err == nil {
		_ = control.Write(func(fd uintptr) bool {
			_, _ = syscall.Write(int(fd), raw)
			return true
		})
	}
}

// signal sends a signal to all processes of the program.
func (r *runner) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(-int64(s))
}

// kill kills all processes of the program.
func (r *runner) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(0)
	if process := r.supervisor; process != nil {
		time.AfterFunc(supervisorTime, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.supervisor == process { // otherwise another process may have its ID
				_ = process.Kill()
			}
		})
	}
}

// programError ends a term after the program has ended.
type programError int

func (e programError) Error() string {
	return fmt.Sprintf("program ended with exit code %d; it runs again in the next term, unless --once is set", int(e))
}

// term runs the program once.
func (r *runner) term(ctx context.Context) error {
	if r.Once {
		defer r.stop()
	}
	term, _ := k8sleaderelection.TermFromContext(ctx)
	pid, err := r.start(term)
	if err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.wait(pid) }()
	select {
	case err = <-ended:
		return err // the leader steps down
	case <-ctx.Done():
	}
	r.Logger.Info("stopping the program", "cause", context.Cause(ctx), "grace", r.Grace)
	r.signal(syscall.SIGTERM)
	select {
	case err = <-ended:
	case <-time.After(r.Grace):
		r.kill()
		err = <-ended
	}
	return err
}

// start starts the program and its supervisor.
func (r *runner) start(term k8sleaderelection.Term) (pid int, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	process, err := os.StartProcess(executable, append([]string{supervisorName, r.path}, r.Program...), &os.ProcAttr{
		Env: r.environment(term), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, read}, Sys: supervisorAttributes(),
	})
	if err != nil {
		return 0, errors.Join(err, write.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.supervisor, r.control = process, write
	r.send(r.end)
	return process.Pid, nil
}

// wait waits for the end of the supervisor, and of all processes of the program.
func (r *runner) wait(pid int) error {
	which := pid
	if os.Getpid() == 1 {
		which = -1 // process 1 of a container also has the orphans of other processes
	}
	status := wait(pid, which)
	if status.Signaled() {
		killOrphans(pid)
	}
	code := exitCode(status)
	r.mu.Lock()
	_ = r.control.Close()
	r.supervisor, r.control = nil, nil
	r.code.Store(int64(code))
	r.mu.Unlock()
	r.Logger.Info("program ended", "exitCode", code)
	return programError(code)
}

// environment returns the environment of the program.
func (r *runner) environment(term k8sleaderelection.Term) []string {
	return append(os.Environ(),
		"ELECTION_NAME="+r.Election, "ELECTION_NAMESPACE="+r.Namespace, "ELECTION_IDENTITY="+r.Identity,
		"ELECTION_TRANSITIONS="+strconv.Itoa(term.Transitions), "ELECTION_TOKEN="+strconv.FormatUint(term.Token, 10),
	)
}
