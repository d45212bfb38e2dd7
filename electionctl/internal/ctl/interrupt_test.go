package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// lead is the program of a candidate. Its arguments are a kubeconfig, a namespace, an election and a type of lock.
func lead(args []string) int {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		fmt.Println(err)
		return Failed
	}
	lock, _ := strconv.Atoi(args[3])
	client, err := kube.NewClient(config)
	if err != nil {
		fmt.Println(err)
		return Failed
	}
	le, err := leaderelection.New(client, leaderelection.Config{
		Namespace: args[1], Identity: "a", ElectionID: args[2], Revision: "stable", Lock: leaderelection.LockType(lock),
		LeaseDuration: 20 * time.Minute, RenewDeadline: 10 * time.Minute, RetryPeriod: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return Failed
	}
	le.AddRunContext(func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err := le.RunContext(context.Background()); err != nil {
		fmt.Println(err)
	}
	return Failed
}

// as returns a path under which the test binary acts as a program.
func as(t *testing.T, program string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), program)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// terminal is a program with a terminal.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	out    harness.Log
	reads  sync.WaitGroup
}

// onTerminal starts a program on a new terminal.
func onTerminal(t *testing.T, path string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	x := &terminal{t: t, master: master, cmd: exec.CommandContext(t.Context(), path, args...)}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.reads.Go(func() { _, _ = io.Copy(&x.out, master) }) // ends with the last process on the terminal
	return x
}

// types waits until the program has printed words, and then types keys.
func (x *terminal) types(after, keys string) {
	x.t.Helper()
	harness.Until(x.t, after, func() bool { return strings.Contains(x.out.String(), after) })
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Error(err)
	}
}

// ends expects the exit code and the words that the program printed.
func (x *terminal) ends(code int, words string) {
	x.t.Helper()
	_ = x.cmd.Wait() // the result is in ProcessState
	x.reads.Wait()
	x.master.Close()
	if got := x.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(x.out.String(), words) {
		x.t.Errorf("exit %d, want %d and %q: %s", got, code, words, x.out.String())
	}
}

// copyRequest writes the request to both objects of a MultiLock, as a leader that renews before it accepts does.
func (e *environment) copyRequest(election string) {
	e.t.Helper()
	leases, configMaps := e.kube.CoordinationV1().Leases(e.namespace), e.kube.CoreV1().ConfigMaps(e.namespace)
	lease, err := leases.Get(e.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	configMap, err := configMaps.Get(e.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	const request = "incumbent.dev/handover-request"
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, request, cmp.Or(lease.Annotations[request], configMap.Annotations[request]))
	_, err = leases.Patch(e.t.Context(), election, types.MergePatchType, patch, metav1.PatchOptions{})
	_, err2 := configMaps.Patch(e.t.Context(), election, types.MergePatchType, patch, metav1.PatchOptions{})
	if err := errors.Join(err, err2); err != nil {
		e.t.Fatal(err)
	}
}

const controlC = "\x03"

// TestInterrupt types Ctrl-C while the process of the leader is stopped.
func TestInterrupt(t *testing.T) {
	electionctl, process := as(t, plugin), as(t, candidate)
	for kind, lock := range map[string]leaderelection.LockType{"lease": leaderelection.LockTypeLease, "configmap": leaderelection.LockTypeConfigMap, "multi": leaderelection.LockTypeMulti} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t)
			leader := harness.Start(t, "leader", nil, process, e.cluster.Kubeconfig(), e.namespace, "work", strconv.Itoa(int(lock)))
			e.shows("work", "a", "leads")
			if lock == leaderelection.LockTypeMulti {
				harness.Until(t, "the second object exists", func() bool {
					_, err := e.kube.CoordinationV1().Leases(e.namespace).Get(t.Context(), "work", metav1.GetOptions{})
					return err == nil
				})
			}
			leader.Signal(t, syscall.SIGSTOP)
			args := []string{"--kubeconfig", e.cluster.Kubeconfig(), "-n", e.namespace, "transfer", "work", "--to", "b", "--revision", "canary"}
			e.pod("b", "canary")

			atPrompt := onTerminal(t, electionctl, args...)
			atPrompt.types("Continue? [y/N]", controlC)
			atPrompt.ends(Interrupted, "interrupted; nothing was changed")
			e.expect(e.run("cancel", "work", "--yes"), Refused, "", "election work has no request of an operator")

			waiting := onTerminal(t, electionctl, args...)
			waiting.types("Continue? [y/N]", "y\n")
			e.shows("work", "a", "handover to b requested")
			waiting.types("", controlC)
			waiting.ends(Interrupted, "the request is still on the lock, and a may execute it; to withdraw it: kubectl election cancel -n "+e.namespace+" work")
			e.expect(e.run("step-down", "work", "--yes"), Refused, "", "withdraw it: electionctl cancel -n NAMESPACE work")
			if lock == leaderelection.LockTypeMulti {
				e.copyRequest("work")
			}
			e.expect(e.run("cancel", "work", "--yes"), Done, "work: handover request removed", "a keeps the lock")
			if got := e.run("explain", "work", "-o", "json").out; strings.Contains(got, `"request"`) {
				t.Error(got)
			}
			leader.Signal(t, syscall.SIGCONT)
			e.shows("work", "a", "leads")
			e.expect(e.run("explain", "work"), Done, "term         0,")
		})
	}
}
