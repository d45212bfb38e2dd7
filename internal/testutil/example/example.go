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
