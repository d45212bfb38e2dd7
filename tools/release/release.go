package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const sumsName = "SHA256SUMS"

// release writes all files.
func (m *maker) release(ctx context.Context, platforms []v1.Platform) error {
	if strings.HasSuffix(m.revision, dirty) || !strings.Contains("0123456789abcdef", m.revision[:1]) {
		return fmt.Errorf("the sources are at %s. A release names its commit: commit the changes, or clone the repository", m.revision)
	}
	notes, err := m.notes()
	if err != nil {
		return err
	}
	if err := m.empty(); err != nil {
		return err
	}
	if err := m.clone(ctx); err != nil {
		return err
	}
	if err := m.file("release-notes.md", notes); err != nil {
		return err
	}
	for _, step := range []func(context.Context, []v1.Platform) error{m.electionctl, m.pilot, m.charts, m.modules, m.sums} {
		if err := step(ctx, platforms); err != nil {
			return err
		}
	}
	return nil
}

// clone replaces the folder of the sources by a clone without tags and ignored files. The go command would write a tag into the programs,
// and a chart would contain its ignored files.
func (m *maker) clone(ctx context.Context) error {
	to, err := filepath.Abs(filepath.Join(m.work, "sources"))
	if err != nil {
		return err
	}
	if _, err := m.git(ctx, "clone", "--quiet", "--no-tags", ".", to); err != nil {
		return fmt.Errorf("clone %s: %w", m.root, err)
	}
	m.root = to
	return nil
}

// empty removes the files of an earlier release, and rejects a folder with other files.
func (m *maker) empty() error {
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(m.out, sumsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	earlier := map[string]bool{sumsName: true}
	for line := range strings.Lines(string(sums)) {
		if _, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  "); found {
			earlier[filepath.FromSlash(name)] = true
		}
	}
	files, err := m.written()
	if err != nil {
		return err
	}
	for _, name := range files {
		if !earlier[name] {
			return fmt.Errorf("-out %s has the file %s, which is not of an earlier release. Set an empty folder", m.out, name)
		}
	}
	for _, name := range files {
		if err := os.Remove(filepath.Join(m.out, name)); err != nil {
			return err
		}
	}
	return nil
}

// written returns the names of the files in the folder of the release.
func (m *maker) written() (names []string, err error) {
	err = fs.WalkDir(os.DirFS(m.out), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, filepath.FromSlash(name))
		}
		return err
	})
	return names, err
}

// notes returns the section of the version in CHANGELOG.md.
func (m *maker) notes() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(m.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	for _, section := range strings.Split("\n"+string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		if version, _, _ := strings.Cut(title, ","); version == m.version {
			return []byte("# incumbent " + m.version + "\n\n" + strings.TrimSpace(body) + "\n"), nil
		}
	}
	return nil, fmt.Errorf("CHANGELOG.md has no section %q. Describe the version there", "## "+m.version)
}

// electionctl writes an archive and an SBOM for each platform, and the krew manifest.
func (m *maker) electionctl(ctx context.Context, platforms []v1.Platform) error {
	licence, err := os.ReadFile(filepath.Join(m.root, "LICENSE"))
	if err != nil {
		return err
	}
	var archives []krewPlatform
	for _, p := range platforms {
		program, err := m.compile(ctx, "electionctl", "", p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		name, pack := m.name("electionctl", p), m.tarGzip
		executable, archive := "electionctl", name+".tar.gz"
		if p.OS == "windows" {
			executable, archive, pack = "electionctl.exe", name+".zip", m.zip
		}
		packed, err := pack(file{"LICENSE", 0o644, licence}, file{executable, 0o755, content})
		if err != nil {
			return err
		}
		if err := m.file(archive, packed); err != nil {
			return err
		}
		if err := m.bill("electionctl", program, name); err != nil {
			return err
		}
		archives = append(archives, m.krewPlatform(p, archive, executable, packed))
	}
	manifest, err := m.krew(archives)
	if err != nil {
		return err
	}
	return m.file("election.yaml", manifest)
}

// name returns the name of the files of a program for a platform.
func (m *maker) name(program string, p v1.Platform) string {
	return program + "_" + m.version + "_" + strings.ReplaceAll(p.String(), "/", "_")
}

// pilot writes the image for the Linux platforms as an OCI archive, and an SBOM for each.
func (m *maker) pilot(ctx context.Context, platforms []v1.Platform) error {
	var linux []v1.Platform
	for _, p := range platforms {
		if p.OS == "linux" {
			linux = append(linux, p)
		}
	}
	if len(linux) == 0 {
		return nil
	}
	layout := filepath.Join(m.work, "layout")
	programs, err := m.image(ctx, linux, layout)
	if err != nil {
		return err
	}
	for i, program := range programs {
		if err := m.bill(imageName, program, m.name(imageName, linux[i])); err != nil {
			return err
		}
	}
	var files []file
	err = filepath.WalkDir(layout, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(layout, path) //nolint:errcheck // path is in layout
		files = append(files, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := m.tar(&packed, files...); err != nil {
		return err
	}
	return m.file(imageName+"_"+m.version+"_oci.tar", packed.Bytes())
}

// sums writes the SHA-256 sums of all files, in the format of sha256sum.
func (m *maker) sums(context.Context, []v1.Platform) error {
	var sums bytes.Buffer
	names, err := m.written()
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(m.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum(content), filepath.ToSlash(name))
	}
	return m.file(sumsName, sums.Bytes())
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// file writes a file of the release.
func (m *maker) file(name string, content []byte) error {
	path := filepath.Join(m.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(m.say, "%s: %d KiB\n", path, (len(content)+1023)/1024)
	return os.WriteFile(path, content, 0o644) //nolint:gosec // a published file
}

// file is a file of an archive or a layer.
type file struct {
	name    string
	mode    int64
	content []byte
}

// tar writes an archive whose files have the time of the commit, so that it is reproducible.
func (s source) tar(to io.Writer, files ...file) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: s.time}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

func (s source) tarGzip(files ...file) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := s.tar(w, files...); err != nil {
		return nil, err
	}
	err := w.Close()
	return packed.Bytes(), err
}

func (s source) zip(files ...file) ([]byte, error) {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: s.time}
		header.SetMode(fs.FileMode(f.mode)) //nolint:gosec // a permission
		to, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}
