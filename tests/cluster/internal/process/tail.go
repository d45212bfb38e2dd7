package process

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	tailBytes = 8 << 10
	tailLines = 12
)

// Tail returns the end of the log, indented, after a line with the file name. It reports read errors in the text.
func (p *Process) Tail() string {
	text, err := tail(p.log)
	switch {
	case err != nil:
		return fmt.Sprintf("failed to read the log: %v", err)
	case text == "":
		return fmt.Sprintf("it wrote nothing to %s", p.log)
	default:
		return fmt.Sprintf("end of %s:\n%s", p.log, text)
	}
}

// Failure returns an error for a process that ended, with the end of its log, or nil while it runs.
func (p *Process) Failure() error {
	state := p.State()
	if state == nil {
		return nil
	}
	return fmt.Errorf("%s ended unexpectedly (%v); %s", p.name, state, p.Tail())
}

// tail returns the last lines of a file.
func tail(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(max(0, size-tailBytes), io.SeekStart); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	if len(lines) == 1 && lines[0] == "" {
		return "", nil
	}
	return "    " + strings.Join(lines, "\n    "), nil
}
