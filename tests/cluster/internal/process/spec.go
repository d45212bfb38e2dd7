package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// lifelineVariable names the file descriptor of the lifeline. tools/lifeline reads it; that is another module, hence
// this copy.
const lifelineVariable = "INCUMBENT_LIFELINE"

// firstExtra is the descriptor of the first of exec.Cmd.ExtraFiles.
const firstExtra = 3

// Spec describes a process.
type Spec struct {
	// Name is used in errors.
	Name string
	// Path is the program. Args are its arguments without the name.
	Path string
	Args []string
	// Env is the complete environment, as "KEY=value".
	Env []string
	// Dir is the working directory. Default: the current one.
	Dir string
	// Log is the file to which output is appended.
	Log string
	// Needs are processes that must outlive this one if the starter dies. Only programs with a lifeline support it.
	Needs []*Process
}

// command returns the command with its lifeline. child is the end that the child inherits, keep the end that keeps it
// alive.
func (s Spec) command() (cmd *exec.Cmd, child, keep *os.File, err error) {
	child, keep, err = os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: create lifeline: %w", s.Name, err)
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

// openLog opens the log and creates its folder.
func (s Spec) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o700); err != nil {
		return nil, fmt.Errorf("%s: create folder of log: %w", s.Name, err)
	}
	file, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: open log: %w", s.Name, err)
	}
	return file, nil
}
