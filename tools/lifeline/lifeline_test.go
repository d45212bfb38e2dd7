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

// TestMain plays a program with a lifeline when the tests start it as one: an ordinary one, or
// one that is deaf to SIGTERM.
func TestMain(m *testing.M) {
	switch os.Getenv("LIFELINE_TEST") {
	case "":
		os.Exit(m.Run())
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	}
	Hold()
	os.Stdout.WriteString("up\n")
	time.Sleep(time.Minute)
}

// start starts the test program with the descriptor that the variable names, 3 being the lifeline.
func start(t *testing.T, kind, variable string) (command *exec.Cmd, lifeline *os.File, said *bytes.Buffer) {
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
	said = &bytes.Buffer{}
	command = exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "LIFELINE_TEST="+kind)
	if variable != "" {
		command.Env = append(command.Env, Variable+"="+variable)
	}
	command.ExtraFiles = []*os.File{reader}
	command.Stdout, command.Stderr = outputEnd, said
	err = command.Start()
	outputEnd.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	// Either it is up, or it ended and there is nothing to read.
	_, _ = output.Read(make([]byte, 3))
	return command, writer, said
}

func TestAProgramEndsWithItsLifeline(t *testing.T) {
	command, lifeline, _ := start(t, "ordinary", "3")
	lifeline.Close()
	_ = command.Wait()
	if status := command.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", command.ProcessState)
	}
}

func TestADeafProgramIsEnded(t *testing.T) {
	command, lifeline, said := start(t, "deaf", "3")
	lifeline.Close()
	_ = command.Wait()
	if command.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "still here 5s after") {
		t.Errorf("it ended with %v and said %q", command.ProcessState, said)
	}
}

func TestAWrongVariableIsTold(t *testing.T) {
	for variable, words := range map[string]string{
		"three": "want the number", "0": "want the number", "99": "no open file descriptor",
	} {
		command, _, said := start(t, "ordinary", variable)
		_ = command.Wait()
		if command.ProcessState.ExitCode() != 2 || !strings.Contains(said.String(), words) {
			t.Errorf("%s: it ended with %v and said %q", variable, command.ProcessState, said)
		}
	}
}
