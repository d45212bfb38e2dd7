package process

import (
	"fmt"
	"os"
	"path/filepath"
)

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
