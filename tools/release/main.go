package main

import (
	"bytes"
	"cmp"
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

	"github.com/blang/semver/v4"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "release:", err)
		}
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	root, out, version, platforms, url string
}

// The platforms of a release. The image has the Linux platforms.
const everyPlatform = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func run(ctx context.Context, args []string, out io.Writer) error {
	onlyImage := len(args) > 0 && args[0] == "image"
	if onlyImage {
		args = args[1:]
	}
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "folder of the sources")
	flags.StringVar(&o.out, "out", "", "folder for the files, which is replaced")
	flags.StringVar(&o.version, "version", "", "version of programs, charts and modules")
	flags.StringVar(&o.platforms, "platforms", "", "comma-separated platforms, such as linux/amd64,linux/arm64 (a release: all)")
	flags.StringVar(&o.url, "url", "https://incumbent.dev/releases/", "address under which the folder of each version is published, for the krew manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.out == "":
		return errors.New("-out is missing. Set the folder of the files")
	case o.version == "":
		return errors.New("-version is missing. Set a version such as 0.1.0")
	case onlyImage && o.platforms == "":
		return errors.New("-platforms is missing. Set platforms such as linux/amd64")
	}
	if v, err := semver.Parse(o.version); err != nil || len(v.Build) > 0 || strings.ToLower(o.version) != o.version {
		return fmt.Errorf("-version %q is not a version such as 0.1.0 or 0.1.0-rc.1", o.version)
	}
	platforms, err := parsePlatforms(cmp.Or(o.platforms, everyPlatform))
	if err != nil {
		return err
	}
	s, err := o.commit(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "incumbent-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a folder for temporary files
	m := &maker{options: o, source: s, work: work, say: out}
	if onlyImage {
		_, err := m.image(ctx, platforms, o.out)
		return err
	}
	return m.release(ctx, platforms)
}

func parsePlatforms(list string) (platforms []v1.Platform, err error) {
	for _, name := range strings.Split(list, ",") {
		platform, err := v1.ParsePlatform(name)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("-platforms: invalid platform %q. Use a form such as linux/amd64", name)
		}
		platforms = append(platforms, *platform)
	}
	return platforms, nil
}

// maker writes the files of a version.
type maker struct {
	options
	source
	work string // for temporary files
	say  io.Writer
}

// compile builds a static program of the module in a folder of the sources, and returns its file.
func (m *maker) compile(ctx context.Context, module, pkg string, platform v1.Platform) (string, error) {
	to, err := filepath.Abs(filepath.Join(m.work, filepath.Base(filepath.Join(module, pkg))+"-"+strings.ReplaceAll(platform.String(), "/", "-")))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto",
		"-ldflags=-s -w -X incumbent.dev/incumbent/pilot/bootstrap.releaseVersion="+m.version, "-o", to, "./"+pkg)
	build.Dir = filepath.Join(m.root, module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w", filepath.Join(module, pkg), platform.String(), err)
	}
	return to, nil
}

// image builds pilot for each platform, and replaces the OCI layout in a folder by its image. It returns the programs.
func (m *maker) image(ctx context.Context, platforms []v1.Platform, folder string) (programs []string, err error) {
	var all []description
	for _, platform := range platforms {
		program, err := m.compile(ctx, "", "cmd/pilot", platform)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program)
		all = append(all, description{
			program: program, platform: platform, licence: filepath.Join(m.root, "LICENSE"),
			version: m.version, source: m.source,
		})
	}
	names, err := write(folder, all)
	if err != nil {
		return nil, err
	}
	for i, d := range all {
		fmt.Fprintf(m.say, "%s: pilot %s for %s, %s\n", m.out, d.version, d.platform.String(), names[i])
	}
	return programs, nil
}

// source is the commit of the sources.
type source struct {
	revision string // with -dirty if there are uncommitted changes, and unknown without a repository
	time     time.Time
}

func (o options) git(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = o.root
	var out bytes.Buffer
	command.Stdout = &out
	err := command.Run()
	return strings.TrimSpace(out.String()), err
}

func (o options) commit(ctx context.Context) (source, error) {
	revision, err := o.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return source{"unknown", time.Unix(0, 0).UTC()}, nil //nolint:nilerr // there is no repository or no git
	}
	when, err := o.git(ctx, "show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return source{}, fmt.Errorf("get time of commit %s: %w", revision, err)
	}
	created, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return source{}, fmt.Errorf("parse time of commit %s: %w", revision, err)
	}
	changes, err := o.git(ctx, "status", "--porcelain")
	if err != nil {
		return source{}, fmt.Errorf("get uncommitted changes: %w", err)
	}
	if changes != "" {
		revision += dirty
	}
	return source{revision, created.UTC()}, nil
}

const dirty = "-dirty"
