// Command pictures takes the screenshots of the elections page for the documentation. It runs the demo (`playground run`),
// changes the default revision twice, deletes a lock, and opens the page of the leader.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"incumbent.dev/incumbent/tests/integration/page/chromium"
)

func main() {
	root := flag.String("root", "../../..", "root of the repository, with programs in bin")
	out := flag.String("out", "../../../docs/images", "output folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := take(ctx, *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// shot describes a picture.
type shot struct {
	name string
	look chromium.Look
	// query is the query of the page.
	query string
}

var shots = []shot{
	{"page-light", chromium.Look{Width: 1280, Height: 930}, ""},
	{"page-phone-dark", chromium.Look{Width: 390, Height: 930, Phone: true, Dark: true}, "?default=canary"},
}

func take(ctx context.Context, root, out string) (err error) {
	demo, err := start(ctx, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, demo.end()) }()
	if err := demo.play(ctx); err != nil {
		return err
	}
	browser, err := chromium.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, browser.Stop()) }()
	for _, s := range shots {
		tab, err := browser.Open(demo.page+s.query, s.look)
		if err != nil {
			return err
		}
		if err := tab.Wait(`document.getElementById("live").textContent === "live"`, time.Minute); err != nil {
			return err
		}
		picture, err := tab.Picture()
		if err := errors.Join(err, tab.Close()); err != nil {
			return err
		}
		file := filepath.Join(out, s.name+".png")
		if err := os.WriteFile(file, picture, 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: %d kB\n", file, len(picture)/1000)
	}
	return nil
}

// demo is a process of `playground run`.
type demo struct {
	root string
	cmd  *exec.Cmd
	// page is the address that the demo prints, kubeconfig the file for its cluster.
	page, kubeconfig string
}

var (
	pageLine = regexp.MustCompile(`http://\S+:15016/debug/elections`)
	kubeLine = regexp.MustCompile(`export KUBECONFIG=(\S+)`)
)

// start starts the demo and waits until it has printed the address of the page.
func start(ctx context.Context, root string) (*demo, error) {
	d := &demo{root: root, cmd: exec.CommandContext(ctx, "bin/playground", "run")}
	d.cmd.Dir, d.cmd.Stderr = root, os.Stderr
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(os.Interrupt) }
	output, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the demo (make build tools): %w", err)
	}
	lines := bufio.NewScanner(output)
	for d.page == "" || d.kubeconfig == "" {
		if !lines.Scan() {
			return nil, errors.Join(errors.New("the demo ended without printing the address of a page"), d.cmd.Wait())
		}
		if page := pageLine.FindString(lines.Text()); page != "" && d.page == "" {
			d.page = page
		}
		if found := kubeLine.FindStringSubmatch(lines.Text()); found != nil {
			d.kubeconfig = found[1]
		}
	}
	go func() { // discard further output
		for lines.Scan() {
		}
	}()
	return d, nil
}

func (d *demo) end() error {
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("run the demo: %w", err)
	}
	return nil
}

// play changes the leader several times, so that the timeline has a history.
func (d *demo) play(ctx context.Context) error {
	for _, step := range []struct {
		command string
		then    time.Duration
	}{
		{"true", 25 * time.Second},
		{"bin/helm -n istio-system upgrade tags deploy/charts/tags --set default=canary", 40 * time.Second},
		{"bin/kubectl -n istio-system delete configmap istio-leader", 30 * time.Second},
		{"bin/helm -n istio-system upgrade tags deploy/charts/tags --set default=stable", 25 * time.Second},
	} {
		words := strings.Fields(step.command)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Stderr = d.root, os.Stderr
		cmd.Env = append(os.Environ(), "KUBECONFIG="+d.kubeconfig)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", step.command, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(step.then):
		}
	}
	return nil
}
