package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A shell may wait in vfork for its child, which SIGSTOP must not stop before its exec.
func TestSignal_WaitsForStop(t *testing.T) {
	for name, script := range map[string]string{"computes": "while :; do :; done", "forks": "while :; do /bin/true; done"} {
		t.Run(name, func(t *testing.T) { waitsForStop(t, shell(t, script)) })
	}
}

func waitsForStop(t *testing.T, p *Process) {
	for range 200 {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			t.Fatalf("state after SIGSTOP: %.1s", state)
		}
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGSTOP); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGSTOP to an ended process: %v", err)
	}
}
