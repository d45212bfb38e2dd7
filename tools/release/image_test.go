package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var root = filepath.Join("..", "..")

// made creates the image for this machine, as `make image` does.
func made(t *testing.T) (folder, said string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "image")
	var out bytes.Buffer
	err := run(t.Context(), []string{"image", "-root", root, "-out", folder, "-version", "1.2.3", "-platforms", "linux/" + runtime.GOARCH}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return folder, out.String()
}

// only returns the only image of the layout.
func only(t *testing.T, folder string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatalf("invalid layout: %v", err)
	}
	whole, err := index.IndexManifest()
	if err != nil || len(whole.Manifests) != 1 || whole.Manifests[0].Annotations["org.opencontainers.image.ref.name"] == "" {
		t.Fatalf("layout of %+v (%v)", whole, err)
	}
	if index, err = index.ImageIndex(whole.Manifests[0].Digest); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%d images (%v)", len(manifest.Manifests), err)
	}
	if p := manifest.Manifests[0].Platform; p == nil || p.OS != "linux" || p.Architecture != runtime.GOARCH {
		t.Errorf("platform %v", p)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// extracted returns the files of an image.
func extracted(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	stream := mutate.Extract(image)
	defer stream.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(stream); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

// The image is valid and labelled, and its static program runs.
func TestImageRuns(t *testing.T) {
	folder, said := made(t)
	image := only(t, folder)
	if digest, err := image.Digest(); err != nil || !strings.Contains(said, digest.String()) {
		t.Errorf("digest %v (%v); output:\n%s", digest, err, said)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	head, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Skipf("sources without a repository: revision %v", err)
	}
	labels := config.Config.Labels
	if labels["org.opencontainers.image.version"] != "1.2.3" || labels["org.opencontainers.image.licenses"] != "Apache-2.0" ||
		!strings.HasPrefix(labels["org.opencontainers.image.revision"], strings.TrimSpace(string(head))) {
		t.Errorf("labels %v", labels)
	}
	if config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 1 {
		t.Errorf("entry point %q, user %q", config.Config.Entrypoint, config.Config.User)
	}
	files := extracted(t, image)
	if len(files) != 2 || !bytes.Contains(files["LICENSE"], []byte("Apache License")) {
		t.Errorf("%d files", len(files))
	}
	program := filepath.Join(t.TempDir(), "pilot")
	if err := os.WriteFile(program, files[strings.TrimPrefix(config.Config.Entrypoint[0], "/")], 0o700); err != nil {
		t.Fatal(err)
	}
	isStatic(t, program)
	run := exec.CommandContext(t.Context(), program, "version")
	run.Env = []string{}
	out, err := run.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "pilot ") {
		t.Errorf("pilot version: %v\n%s", err, out)
	}
}

// isStatic checks that a program needs no interpreter and no libraries.
func isStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v (%v)", libraries, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs an interpreter")
		}
	}
}

// Builds of the same sources have the same digest.
func TestImage_Reproducible(t *testing.T) {
	// Another test may create a file in the repository between the builds.
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "status.showUntrackedFiles")
	t.Setenv("GIT_CONFIG_VALUE_0", "no")
	first, said := made(t)
	second, again := made(t)
	if strings.ReplaceAll(said, first, "") != strings.ReplaceAll(again, second, "") {
		t.Errorf("first\n%sthen\n%s", said, again)
	}
}

func TestRun_InvalidFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-out is missing":             {},
		"-version is missing":         {"-out=x"},
		"-platforms is missing":       {"image", "-out=x", "-version=1.0.0"},
		`-version "1"`:                {"-out=x", "-version=1"},
		`invalid platform "linux"`:    {"-out=x", "-version=1.0.0", "-platforms=linux"},
		`unexpected argument "there"`: {"there"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}
