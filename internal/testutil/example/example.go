package example

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Write writes the Go program of README.md to main.go in a folder, and returns the path of the file. root is the
// folder of the module.
func Write(root, folder string) (file string, err error) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(page), "```go\n")
	source, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		return "", errors.New("README.md has no Go example")
	}
	file = filepath.Join(folder, "main.go")
	return file, os.WriteFile(file, []byte(source), 0o600)
}

// Build compiles a program as part of the module in root.
func Build(ctx context.Context, root, file, binary string, flags ...string) error {
	args := append([]string{"build", "-o", binary}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, file)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", file, err, out)
	}
	return nil
}

// Hunk is a replacement of lines.
type Hunk struct{ Old, New string }

// Diff returns the hunks of the first diff of a page. A line with "…" separates them.
func Diff(page string) ([]Hunk, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	_, rest, found := strings.Cut(string(text), "```diff\n")
	diff, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		return nil, fmt.Errorf("%s has no diff", page)
	}
	hunks := make([]Hunk, 1)
	for line := range strings.Lines(diff) {
		last := &hunks[len(hunks)-1]
		switch sign, code := line[0], line[1:]; {
		case strings.TrimSpace(line) == "…":
			hunks = append(hunks, Hunk{})
		case sign == '-':
			last.Old += code
		case sign == '+':
			last.New += code
		default:
			last.Old += code
			last.New += code
		}
	}
	return hunks, nil
}

// Apply applies hunks to a source. Each must match once.
func Apply(source string, hunks []Hunk) (string, error) {
	for _, h := range hunks {
		if n := strings.Count(source, h.Old); n != 1 {
			return "", fmt.Errorf("the source has %d times:\n%s", n, h.Old)
		}
		source = strings.Replace(source, h.Old, h.New, 1)
	}
	return source, nil
}

// Commands returns the indented command lines of README.md, from one heading to another.
func Commands(root, from, to string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	_, rest, found := strings.Cut(string(page), from)
	text, _, ended := strings.Cut(rest, to)
	if !found || !ended {
		return nil, fmt.Errorf("README.md has no part from %q to %q", from, to)
	}
	var commands []string
	for line := range strings.Lines(text) {
		if command, indented := strings.CutPrefix(line, "    "); indented {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands, nil
}
