package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// lifelineVariable tells a program of ours which inherited descriptor is its
// lifeline. tools/lifeline reads it; that is another module, hence this copy.
const lifelineVariable = "INCUMBENT_LIFELINE"

// firstExtra is the number that the first of exec.Cmd.ExtraFiles gets in the child.
const firstExtra = 3

// Spec says what to run.
type Spec struct {
	// Name is what errors call it.
	Name string
	// Path is the program; Args its arguments without the name.
	Path string
	Args []string
	// Env is the whole environment, as "KEY=value".
	Env []string
	// Dir is the working directory; empty means the starter's own.
	Dir string
	// Log is the file that standard output and error are appended to.
	Log string
	// Needs are processes that have to outlive this one when the starter dies. Only
	// programs that know lifelines do.
	Needs []*Process
}

// command makes the command with its lifeline. The second result is the end that the child
// inherits, the third the one that keeps it alive.
func (s Spec) command() (cmd *exec.Cmd, child, keep *os.File, err error) {
	child, keep, err = os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: making its lifeline: %w", s.Name, err)
	}
	cmd = exec.Command(s.Path, s.Args...)
	cmd.Dir = s.Dir
	cmd.Env = append(append([]string{}, s.Env...), fmt.Sprintf("%s=%d", lifelineVariable, firstExtra))
	cmd.ExtraFiles = []*os.File{child}
	for _, need := range s.Needs {
		cmd.ExtraFiles = append(cmd.ExtraFiles, need.lifeline)
	}
	cmd.SysProcAttr = attributes()
	return cmd, child, keep, nil
}

// openLog opens the file for output, and makes its folder.
func (s Spec) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o700); err != nil {
		return nil, fmt.Errorf("%s: making the folder of its log: %w", s.Name, err)
	}
	file, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: opening its log: %w", s.Name, err)
	}
	return file, nil
}
