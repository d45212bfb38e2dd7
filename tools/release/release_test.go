package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// sources returns a clone of the last commit.
func sources(t *testing.T) string {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "sources")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", root, clone).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("git clone: %v\n%s", err, out)
		}
		t.Skipf("sources without a repository: %v\n%s", err, out)
	}
	return clone
}

// Two releases of a commit have the same bytes, also in another folder, with another umask and time zone, and with tags and ignored files.
// Each file has the content that a user expects.
func TestRelease(t *testing.T) {
	clone := sources(t)
	dist := filepath.Join(t.TempDir(), "dist")
	released := func(clone string) map[string][]byte {
		err := run(t.Context(), []string{"-root", clone, "-out", dist, "-version", "0.1.0", "-platforms", "linux/" + runtime.GOARCH}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, dist)
	}
	files := released(clone)
	t.Setenv("TZ", "Asia/Tokyo")
	defer syscall.Umask(syscall.Umask(0o077))
	other := sources(t)
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", `cd "$0"
		git tag v0.1.0
		git tag electionctl/v0.1.0
		echo '*.orig' > .git/info/exclude
		echo x > deploy/charts/tags/README.orig`, other).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	again := released(other) // replaces the first one
	if len(files) != len(again) {
		t.Errorf("%d files, then %d", len(files), len(again))
	}
	for name, content := range files {
		if !bytes.Equal(content, again[name]) {
			t.Errorf("%s differs in the second release", name)
		}
		if name != sumsName && !bytes.Contains(files[sumsName], []byte(sum(content)+"  "+name+"\n")) {
			t.Errorf("%s has no sum, or a wrong one:\n%s", name, files[sumsName])
		}
	}
	archive := "electionctl_0.1.0_linux_" + runtime.GOARCH
	t.Run("archive", func(t *testing.T) { isArchive(t, files[archive+".tar.gz"]) })
	t.Run("image", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "image")
		unpack(t, bytes.NewReader(files["pilot_0.1.0_oci.tar"]), folder)
		index, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
	})
	t.Run("charts", func(t *testing.T) {
		for _, name := range []string{"pilot", "tags"} {
			chart, err := loader.LoadArchive(bytes.NewReader(files[name+"-0.1.0.tgz"]))
			if err != nil || chart.Metadata.Version != "0.1.0" || chart.Metadata.AppVersion != "0.1.0" || len(chart.Templates) == 0 {
				t.Errorf("%s: %+v (%v)", name, chart, err)
			}
		}
	})
	t.Run("krew", func(t *testing.T) { isManifest(t, files["election.yaml"], archive+".tar.gz", files) })
	t.Run("SBOM", func(t *testing.T) {
		for name, dependency := range map[string]string{archive: "k8s.io/cli-runtime", "pilot_0.1.0_linux_" + runtime.GOARCH: "sigs.k8s.io/gateway-api"} {
			var bom cyclonedx.BOM
			if err := cyclonedx.NewBOMDecoder(bytes.NewReader(files[name+".cdx.json"]), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
				t.Fatal(err)
			}
			if text := string(files[name+".cdx.json"]); !strings.Contains(text, "pkg:golang/"+dependency+"@v") || bom.Metadata.Component.Version != "0.1.0" {
				t.Errorf("%s lacks %s or the version:\n%.2000s", name, dependency, text)
			}
		}
	})
	t.Run("notes", func(t *testing.T) {
		if notes := string(files["release-notes.md"]); !strings.HasPrefix(notes, "# incumbent 0.1.0\n\n- ") || strings.Contains(notes, "\n## ") {
			t.Errorf("%.300s", notes)
		}
	})
	t.Run("install", func(t *testing.T) { installs(t, filepath.Join(dist, "modules")) })
}

// installs checks that the go command installs electionctl from the published modules.
func installs(t *testing.T, modules string) {
	t.Helper()
	get := func(name string) string {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	// A module cache of its own, because the version is not published yet. Downloaded dependencies are taken from the usual one.
	bin, cache := t.TempDir(), t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "-trimpath", modulePath+"/electionctl@v0.1.0")
	install.Dir = bin
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GONOSUMDB="+modulePath, "GOSUMDB=off", "CGO_ENABLED=0",
		"GOPROXY=file://"+modules+",file://"+get("GOMODCACHE")+"/cache/download,"+get("GOPROXY"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "electionctl"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "electionctl v0.1.0, Kubernetes 1.") {
		t.Errorf("%v: %s", err, out)
	}
}

// isArchive checks that the program in an archive of electionctl runs.
func isArchive(t *testing.T, archive []byte) {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	unpack(t, unzipped, folder)
	if licence, err := os.ReadFile(filepath.Join(folder, "LICENSE")); err != nil || len(licence) == 0 {
		t.Error("no license", err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "electionctl"), "version").CombinedOutput()
	head, _ := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil || !strings.HasPrefix(string(out), "electionctl 0.1.0, Kubernetes 1.") || !strings.Contains(string(out), ", commit "+strings.TrimSpace(string(head))) ||
		strings.Contains(string(out), "modified") {
		t.Errorf("%v: %s", err, out)
	}
}

func isManifest(t *testing.T, text []byte, archive string, files map[string][]byte) {
	t.Helper()
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []krewPlatform
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil || manifest.Spec.Version != "v0.1.0" || len(manifest.Spec.Platforms) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	if p := manifest.Spec.Platforms[0]; p.URI != "https://incumbent.dev/releases/v0.1.0/"+archive || p.Sum != sum(files[archive]) || p.Bin != "electionctl" {
		t.Errorf("%+v", p)
	}
}

// read returns the files of a folder by name.
func read(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func unpack(t *testing.T, archive io.Reader, folder string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, os.FileMode(header.Mode)); err != nil {
			t.Fatal(err)
		}
	}
}

// A release is not made from sources that no commit has, of a version that CHANGELOG.md does not describe, or over other files.
func TestRelease_Rejects(t *testing.T) {
	clone, others := sources(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(others, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants := func(want, out, version string) {
		t.Helper()
		err := run(t.Context(), []string{"-root", clone, "-out", out, "-version", version, "-platforms", "linux/" + runtime.GOARCH}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := write(others, nil); err == nil || !strings.Contains(err.Error(), "no OCI layout") {
		t.Error("the image replaces other files:", err)
	}
	wants(`no section "## 9.9.9"`, t.TempDir(), "9.9.9")
	wants("has the file thesis.txt", others, "0.1.0")
	if err := os.WriteFile(filepath.Join(clone, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wants("-dirty. A release names its commit", t.TempDir(), "0.1.0")
}
