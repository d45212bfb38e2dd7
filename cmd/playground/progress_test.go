package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A build says something at once, goes on to do so, passes errors on, and fails as its command does.
func TestABuildTellsHowFarItIs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "bash", "../../tools/progress.sh", "building it", "sh", "-c",
		`echo go: downloading example.com v1; echo example.com/a >&2; echo example.com/b >&2; read go; echo '# example.com/c'; echo 'c.go:1: wrong'; exit 3`)
	build.Env = append(os.Environ(), "PROGRESS_EVERY=0.05")
	goOn, err := build.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := build.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := build.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if first, err := lines.ReadString('\n'); err != nil || first != "building it …\n" {
		t.Errorf("the first line is %q (%v)", first, err)
	}
	for line := ""; !strings.HasPrefix(line, "  1 modules downloaded, 2 packages compiled after "); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("it does not tell: %v", err)
		}
	}
	if err := goOn.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "# example.com/c\nc.go:1: wrong\n") {
		t.Errorf("the errors are not in %q (%v)", rest, err)
	}
	var failed *exec.ExitError
	if err := build.Wait(); !errors.As(err, &failed) || failed.ExitCode() != 3 {
		t.Errorf("it ends with %v, want 3", err)
	}
}

func TestWrongTimingIsToldBeforeAnythingStarts(t *testing.T) {
	var said strings.Builder
	_, err := parse([]string{"run", "--lease-duration=3s"}, &said)
	if err == nil || !strings.Contains(err.Error(), "--lease-duration") || !strings.Contains(err.Error(), "4s") {
		t.Errorf("a lease shorter than the renew deadline: %v", err)
	}
	if _, err := parse([]string{"demo"}, &said); err != nil {
		t.Errorf("the playground's own timing: %v", err)
	}
}

// A server that cannot start is told by its last words, and not waited for.
func TestServersThatEndAgainAndAgainAreNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wrong := t.TempDir() + "/wrong"
	if err := os.WriteFile(wrong, []byte("#!/bin/sh\necho it cannot be; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	err := play(ctx, settings{timing: quick, pilot: wrong, helmProgram: buildHelm(t), charts: charts}, &screen{out: &said})
	if err == nil || !strings.Contains(err.Error(), "has ended 2 times; the last lines of its log:\n   it cannot be") || ctx.Err() != nil {
		t.Errorf("it says %v", err)
	}
}
