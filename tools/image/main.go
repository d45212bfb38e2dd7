package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	root, out, version, platforms string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "folder of the sources")
	flags.StringVar(&o.out, "out", "", "folder of the OCI layout, which is replaced")
	flags.StringVar(&o.version, "version", "", "version of the program")
	flags.StringVar(&o.platforms, "platforms", "", "comma-separated platforms, such as linux/amd64,linux/arm64")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.out == "":
		return errors.New("-out is missing. Set the folder of the layout")
	case o.version == "":
		return errors.New("-version is missing. Set a version such as 0.1.0")
	case o.platforms == "":
		return errors.New("-platforms is missing. Set platforms such as linux/amd64")
	}
	return o.make(ctx, out)
}

// make builds the program and the image for each platform.
func (o options) make(ctx context.Context, out io.Writer) error {
	revision, created, err := o.commit(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "incumbent-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a folder for temporary files
	var all []description
	for _, name := range strings.Split(o.platforms, ",") {
		platform, err := v1.ParsePlatform(name)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return fmt.Errorf("-platforms: invalid platform %q. Use a form such as linux/amd64", name)
		}
		program := filepath.Join(folder, strings.ReplaceAll(name, "/", "-"))
		if err := o.compile(ctx, *platform, program); err != nil {
			return err
		}
		all = append(all, description{
			program: program, platform: *platform, licence: filepath.Join(o.root, "LICENSE"),
			version: o.version, revision: revision, created: created,
		})
	}
	names, err := write(o.out, all)
	if err != nil {
		return err
	}
	for i, d := range all {
		fmt.Fprintf(out, "%s: pilot %s for %s, %s\n", o.out, d.version, d.platform.String(), names[i])
	}
	return nil
}

// compile builds a static program.
func (o options) compile(ctx context.Context, platform v1.Platform, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", to, "./cmd/pilot")
	build.Dir = o.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build pilot for %s: %w", platform.String(), err)
	}
	return nil
}

// commit returns the commit of the sources, with -dirty for uncommitted changes, and its time. Both are empty without a
// repository.
func (o options) commit(ctx context.Context) (revision string, created time.Time, err error) {
	git := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, "git", args...)
		command.Dir = o.root
		var out bytes.Buffer
		command.Stdout = &out
		err := command.Run()
		return strings.TrimSpace(out.String()), err
	}
	revision, err = git("rev-parse", "HEAD")
	if err != nil {
		return "unknown", time.Unix(0, 0).UTC(), nil //nolint:nilerr // there is no repository or no git
	}
	when, err := git("show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return "", time.Time{}, fmt.Errorf("get time of commit %s: %w", revision, err)
	}
	if created, err = time.Parse(time.RFC3339, when); err != nil {
		return "", time.Time{}, fmt.Errorf("parse time of commit %s: %w", revision, err)
	}
	changes, err := git("status", "--porcelain")
	if err != nil {
		return "", time.Time{}, fmt.Errorf("get uncommitted changes: %w", err)
	}
	if changes != "" {
		revision += "-dirty"
	}
	return revision, created, nil
}
