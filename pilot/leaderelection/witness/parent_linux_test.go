package witness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// supervised runs the test program as a child and its witness.
func supervised(mode string) {
	if mode == "exit" {
		status{signal: syscall.SIGABRT}.exit()
	}
	client, err := FromParent()
	if mode == "orphans" && client == nil { // orphans become children of this process, as with process 1 of a container
		err = errors.Join(err, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	if err == nil && client == nil {
		err = Supervise(Options{Connect: func(string) (*rest.Config, error) { return nil, errors.New("unknown cluster") }})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if mode == "term of another process" {
		child := exec.Command("/proc/self/exe")
		child.Env, child.ExtraFiles = append(os.Environ(), "MODE=term", variable+"=3"), []*os.File{os.NewFile(uintptr(client.fd), "socket")}
		_ = child.Run()
		os.Exit(child.ProcessState.ExitCode())
	}
	if mode == "term" {
		client.For("", func() bool { return true }).Register(term(1))
		os.Exit(3)
	}
	if mode == "orphans" {
		_ = exec.Command("/bin/sh", "-c", "sleep 0.1 & sleep 0.1 &").Run()
	}
	fmt.Println("ignored", signal.Ignored(syscall.SIGHUP))
	signals := make(chan os.Signal, 10)
	signal.Notify(signals)
	fmt.Println("ready")
	for s := range signals {
		if s != syscall.SIGURG && s != syscall.SIGCHLD {
			fmt.Println(s)
		}
		if s == syscall.SIGUSR2 {
			os.Exit(4)
		}
	}
}

// start starts the test program in a mode.
func start(t *testing.T, mode string, change func(*exec.Cmd)) (*exec.Cmd, *harness.Log) {
	t.Helper()
	out := &harness.Log{}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdout = append(os.Environ(), "MODE="+mode), out
	change(cmd)
	harness.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, out
}

// The terminal sends a signal to parent and child. A second one would kill a program that is stopping.
func TestParent_TerminalInterrupt(t *testing.T) {
	for name, input := range map[string]bool{"standard input": true, "other input": false} {
		t.Run(name, func(t *testing.T) {
			keys, screen := harness.Terminal(t)
			cmd, out := start(t, "signals", func(cmd *exec.Cmd) {
				if cmd.ExtraFiles = []*os.File{screen}; input {
					cmd.Stdin = screen
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
			})
			prints := func(text string) {
				harness.Until(t, "the child prints "+text, func() bool { return strings.Contains(out.String(), text+"\n") })
			}
			prints("ready")
			_, _ = keys.WriteString("\x03")
			prints("interrupt")
			_ = cmd.Process.Signal(syscall.SIGUSR2)
			_ = cmd.Wait()
			if n := strings.Count(out.String(), "interrupt"); n != 1 || cmd.ProcessState.ExitCode() != 4 {
				t.Errorf("the child received %d interrupts, %v", n, cmd.ProcessState)
			}
		})
	}
}

// nohup lets a program continue after the end of its terminal.
func TestParent_IgnoredHangup(t *testing.T) {
	_, out := start(t, "signals", func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0"`, os.Args[0]}
	})
	harness.Until(t, "the child is ready", func() bool { return strings.Contains(out.String(), "ready") })
	if !strings.Contains(out.String(), "ignored true") {
		t.Error("the child does not ignore SIGHUP")
	}
}

// The log of a release may have no reader.
func TestParent_ClosedStandardError(t *testing.T) {
	read, write, err := os.Pipe()
	harness.Must(t, err)
	_ = read.Close()
	cmd, _ := start(t, "term", func(cmd *exec.Cmd) { cmd.Stderr = write })
	_ = write.Close()
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("witness ended with %v, want exit code 3", cmd.ProcessState)
	}
}

// The parent releases the terms of its child only, also if another process has a copy of the socket.
func TestParent_TermOfOther(t *testing.T) {
	for mode, want := range map[string]int{"term": 1, "term of another process": 0} {
		out := &harness.Log{}
		cmd, _ := start(t, mode, func(cmd *exec.Cmd) { cmd.Stderr = out })
		_ = cmd.Wait()
		if got := out.Count("did not release the lock"); got != want || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: %d releases, want %d. %v\n%s", mode, got, want, cmd.ProcessState, out)
		}
	}
}

// A signal with a core file ends the process before os.Exit does.
func TestStatus_ExitSignal(t *testing.T) {
	for range 30 {
		cmd, _ := start(t, "exit", func(*exec.Cmd) {})
		_ = cmd.Wait()
		if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGABRT {
			t.Fatalf("process ended with %v, want SIGABRT", cmd.ProcessState)
		}
	}
}

func TestParent_ReapsOrphans(t *testing.T) {
	cmd, out := start(t, "orphans", func(*exec.Cmd) {})
	harness.Until(t, "the child is ready", func() bool { return strings.Contains(out.String(), "ready") })
	harness.Until(t, "the orphans are reaped", func() bool {
		children, err := harness.Children(cmd.Process.Pid)
		return err == nil && len(children) == 1
	})
	_ = cmd.Process.Signal(syscall.SIGUSR2)
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("the parent ended with %v, want exit code 4", cmd.ProcessState)
	}
}
