package process

import (
	"fmt"
	"os"
	"strings"
)

const tailLines = 12

// Tail returns the end of the log, indented, after a line with the file name. It reports read errors in the text.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	switch {
	case err != nil:
		return fmt.Sprintf("failed to read the log: %v", err)
	case lines[0] == "":
		return fmt.Sprintf("it wrote nothing to %s", p.log)
	}
	return fmt.Sprintf("end of %s:\n    %s", p.log, strings.Join(lines[max(0, len(lines)-tailLines):], "\n    "))
}

// Failure returns an error for a process that ended, with the end of its log, or nil while it runs.
func (p *Process) Failure() error {
	state := p.State()
	if state == nil {
		return nil
	}
	return fmt.Errorf("%s ended unexpectedly (%v); %s", p.name, state, p.Tail())
}
