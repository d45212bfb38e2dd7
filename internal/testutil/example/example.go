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

// Write puts README.md's Go program into a folder, as main.go, and returns that file's
// path. root is the module's folder.
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

// Build compiles a file of a program as part of the module at root.
func Build(ctx context.Context, root, file, binary string, flags ...string) error {
	args := append([]string{"build", "-o", binary}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, file)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", file, err, out)
	}
	return nil
}
