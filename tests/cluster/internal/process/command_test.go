package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A process inherits its lifeline, then those of what it needs, and dies with the thread that started it.
func TestWhatAProcessInherits(t *testing.T) {
	needed := &Process{}
	var err error
	if _, needed.lifeline, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	defer needed.lifeline.Close()
	cmd, child, keep, err := Spec{
		Name: "x", Path: "/bin/sh", Args: []string{"-c", "true"}, Env: []string{"A=b"}, Dir: "/", Needs: []*Process{needed},
	}.command()
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	defer child.Close()
	if !slices.Equal(cmd.ExtraFiles, []*os.File{child, needed.lifeline}) || !slices.Equal(cmd.Env, []string{"A=b", lifelineVariable + "=3"}) ||
		cmd.Path != "/bin/sh" || !slices.Equal(cmd.Args, []string{"/bin/sh", "-c", "true"}) || cmd.Dir != "/" {
		t.Errorf("the command is %+v", cmd)
	}
	if a := cmd.SysProcAttr; a == nil || !a.Setpgid || a.Pdeathsig != syscall.SIGKILL {
		t.Errorf("its attributes are %+v", a)
	}
	if _, err := keep.Write([]byte("x")); err != nil { // the ends belong together
		t.Error(err)
	}
	var read [1]byte
	if n, err := child.Read(read[:]); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// A log that cannot be read is no failure of who asks for its end.
func TestATailThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	for _, log := range []string{filepath.Join(folder, "none"), folder} {
		if got := (&Process{log: log}).Tail(); !strings.HasPrefix(got, "its log cannot be read: ") || !strings.Contains(got, log) {
			t.Errorf("of %s: %s", log, got)
		}
	}
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (&Process{log: empty}).Tail(); got != "it wrote nothing to "+empty {
		t.Errorf("of an empty one: %s", got)
	}
}

// A process whose log cannot be opened is not started, and the error says which and why.
func TestALogThatCannotBeOpened(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for log, want := range map[string]string{folder: "x: opening its log: ", filepath.Join(file, "log"): "x: making the folder of its log: "} {
		if p, err := Start(Spec{Name: "x", Path: "/bin/sh", Log: log}); p != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", p, err, want)
		}
	}
}
