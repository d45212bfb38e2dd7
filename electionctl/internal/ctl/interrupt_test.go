package ctl

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

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
	master, screen := harness.Terminal(t)
	defer screen.Close()
	x := &terminal{t: t, master: master, cmd: exec.CommandContext(t.Context(), path, args...)}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = screen, screen, screen
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

const controlC = "\x03"

// TestInterrupt types Ctrl-C while the leader does not respond.
func TestInterrupt(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	electionctl := filepath.Join(t.TempDir(), plugin)
	if err := os.Symlink(self, electionctl); err != nil {
		t.Fatal(err)
	}
	e := newEnvironment(t)
	e.lock("work", ourRecord, marker, ourMarker)
	e.pod("b", "canary")
	args := []string{"--kubeconfig", e.cluster.Kubeconfig(), "-n", e.namespace, "transfer", "work", "--to", "b"}

	atPrompt := onTerminal(t, electionctl, args...)
	atPrompt.types("Continue? [y/N]", controlC)
	atPrompt.ends(Interrupted, "interrupted; nothing was changed")
	e.expect(e.run("cancel", "work", "--yes"), Refused, "", "election work has no request of an operator")

	waiting := onTerminal(t, electionctl, args...)
	waiting.types("Continue? [y/N]", "y\n")
	e.shows("work", "pilot-1", "handover to b requested")
	waiting.types("", controlC)
	waiting.ends(Interrupted, "the request is still on the lock, and pilot-1 may execute it; to withdraw it: kubectl election cancel -n "+e.namespace+" work")
	e.expect(e.run("step-down", "work", "--yes"), Refused, "", "withdraw it: electionctl cancel -n NAMESPACE work")
	e.expect(e.run("cancel", "work", "--yes"), Done, "work: handover request removed", "pilot-1 keeps the lock")
	if got := e.run("explain", "work", "-o", "json").out; strings.Contains(got, `"request"`) {
		t.Error(got)
	}
}
