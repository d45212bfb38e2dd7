package lifeline

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the test program as a program with a lifeline. One kind ignores SIGTERM.
func TestMain(m *testing.M) {
	switch os.Getenv("LIFELINE_TEST") {
	case "":
		os.Exit(m.Run())
	case "ignores SIGTERM":
		signal.Ignore(syscall.SIGTERM)
	}
	Hold()
	os.Stdout.WriteString("up\n")
	time.Sleep(time.Minute)
}

// start starts the test program with the descriptor in the variable. Descriptor 3 is the lifeline.
func start(t *testing.T, kind, variable string) (command *exec.Cmd, lifeline *os.File, stderr *bytes.Buffer) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	t.Cleanup(func() { writer.Close() })
	output, outputEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	stderr = &bytes.Buffer{}
	command = exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "LIFELINE_TEST="+kind)
	if variable != "" {
		command.Env = append(command.Env, Variable+"="+variable)
	}
	command.ExtraFiles = []*os.File{reader}
	command.Stdout, command.Stderr = outputEnd, stderr
	err = command.Start()
	outputEnd.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	// The program is running, or it has ended.
	_, _ = output.Read(make([]byte, 3))
	return command, writer, stderr
}

func TestHold_LifelineCloses(t *testing.T) {
	command, lifeline, _ := start(t, "ordinary", "3")
	lifeline.Close()
	_ = command.Wait()
	if status := command.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the program ended with %v", command.ProcessState)
	}
}

func TestHold_SIGTERMIgnored(t *testing.T) {
	command, lifeline, stderr := start(t, "ignores SIGTERM", "3")
	lifeline.Close()
	_ = command.Wait()
	if command.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "still running 5s after") {
		t.Errorf("the program ended with %v and printed %q", command.ProcessState, stderr)
	}
}

func TestHold_InvalidVariable(t *testing.T) {
	for variable, words := range map[string]string{
		"three": "want the number", "0": "want the number", "99": "no open file descriptor",
	} {
		command, _, stderr := start(t, "ordinary", variable)
		_ = command.Wait()
		if command.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), words) {
			t.Errorf("%s: the program ended with %v and printed %q", variable, command.ProcessState, stderr)
		}
	}
}
