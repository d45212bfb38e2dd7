package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"
)

// charts writes the package of each chart.
func (m *maker) charts(context.Context, []v1.Platform) error {
	for _, name := range []string{"pilot", "tags"} {
		chart, err := loader.LoadDir(filepath.Join(m.root, "deploy", "charts", name))
		if err != nil {
			return fmt.Errorf("load chart %s: %w", name, err)
		}
		chart.Metadata.Version, chart.Metadata.AppVersion = m.version, m.version
		chart.ModTime, chart.SchemaModTime = m.time, m.time
		for _, f := range slices.Concat(chart.Raw, chart.Templates, chart.Files) {
			f.ModTime = m.time
		}
		slices.SortFunc(chart.Files, func(a, b *common.File) int { return strings.Compare(a.Name, b.Name) })
		to, err := chartutil.Save(chart, m.out)
		if err != nil {
			return fmt.Errorf("package chart %s: %w", name, err)
		}
		fmt.Fprintln(m.say, to)
	}
	return nil
}

// The folders of the published modules. Each is named like its folder.
var published = []string{"", "electionctl", "adapters/controllerruntime"}

const modulePath = "incumbent.dev/incumbent"

// modules writes the published modules as files of a module proxy. Their go.mod requires the version of the release instead of a folder,
// because `go install` rejects replaced modules.
func (m *maker) modules(ctx context.Context, _ []v1.Platform) error {
	list, err := m.git(ctx, "ls-files", "-z")
	if err != nil {
		return fmt.Errorf("list the sources: %w", err)
	}
	for _, folder := range published {
		goMod, err := m.goMod(folder)
		if err != nil {
			return err
		}
		temporary := filepath.Join(m.work, "go.mod")
		if err := os.WriteFile(temporary, goMod, 0o600); err != nil {
			return err
		}
		files := []modzip.File{onDisk{"go.mod", temporary}}
		for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
			in, ok := strings.CutPrefix(name, folder+"/")
			if folder == "" {
				in, ok = name, true
			}
			if info, err := os.Lstat(filepath.Join(m.root, name)); ok && in != "go.mod" && err == nil && info.Mode().IsRegular() {
				files = append(files, onDisk{in, filepath.Join(m.root, name)})
			}
		}
		if folder != "" {
			files = append(files, onDisk{"LICENSE", filepath.Join(m.root, "LICENSE")}) // as the go command does
		}
		version := module.Version{Path: path.Join(modulePath, folder), Version: "v" + m.version}
		var packed bytes.Buffer
		if err := modzip.Create(&packed, version, files); err != nil {
			return fmt.Errorf("pack module %s: %w", version.Path, err)
		}
		info, err := json.Marshal(map[string]string{"Version": version.Version, "Time": m.time.Format(time.RFC3339)})
		if err != nil {
			return err
		}
		at := "modules/" + version.Path + "/@v/"
		for name, content := range map[string][]byte{
			"list": []byte(version.Version + "\n"), version.Version + ".info": info, version.Version + ".mod": goMod, version.Version + ".zip": packed.Bytes(),
		} {
			if err := m.file(at+name, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// goMod returns the published go.mod of the module in a folder.
func (m *maker) goMod(folder string) ([]byte, error) {
	name := filepath.Join(m.root, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parsed, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Clone(parsed.Replace) {
		if r.Old.Path != modulePath {
			return nil, fmt.Errorf("%s replaces %s. A published module must not: `go install` rejects it", name, r.Old.Path)
		}
		if err := parsed.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, err
		}
		if err := parsed.AddRequire(modulePath, "v"+m.version); err != nil {
			return nil, err
		}
	}
	parsed.Cleanup()
	return parsed.Format()
}

// bill writes the CycloneDX SBOM of a program, from the modules that the go command recorded in it.
func (m *maker) bill(name, program, to string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	var components []cyclonedx.Component
	var requires []string
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: dep.Path, Version: dep.Version}
		if strings.HasPrefix(dep.Path, ".") { // the replaced module of this project
			c.Name, c.Version = modulePath, "v"+m.version
		}
		c.PackageURL = "pkg:golang/" + c.Name + "@" + c.Version
		c.BOMRef = c.PackageURL
		if encoded, ok := strings.CutPrefix(dep.Sum, "h1:"); ok {
			if digest, err := base64.StdEncoding.DecodeString(encoded); err == nil {
				c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}}
			}
		}
		components, requires = append(components, c), append(requires, c.BOMRef)
	}
	ref := "pkg:golang/" + info.Main.Path + "@v" + m.version
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: m.time.Format(time.RFC3339), Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: name, Version: m.version, BOMRef: ref, PackageURL: ref,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components, bom.Dependencies = &components, &[]cyclonedx.Dependency{{Ref: ref, Dependencies: &requires}}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return m.file(to+".cdx.json", text.Bytes())
}

// krewPlatform and krew are the manifest of https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
type krewPlatform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	Sum      string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

func (m *maker) krewPlatform(p v1.Platform, archive, executable string, packed []byte) krewPlatform {
	return krewPlatform{
		Selector: map[string]map[string]string{"matchLabels": {"os": p.OS, "arch": p.Architecture}},
		URI:      strings.TrimSuffix(m.url, "/") + "/v" + m.version + "/" + archive, Sum: sum(packed), Bin: executable,
	}
}

func (m *maker) krew(platforms []krewPlatform) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]any{"name": "election"},
		"spec": map[string]any{
			"version": "v" + m.version, "homepage": "https://incumbent.dev", "platforms": platforms,
			"shortDescription": "Show and operate leader elections",
			"description":      "Lists leaders and candidates, explains why a replica leads, transfers and pauses elections, finds causes of problems, and reads audit logs for writes of non-leaders.",
		},
	})
}

// onDisk is a file of a module.
type onDisk struct{ name, at string }

func (f onDisk) Path() string                 { return f.name }
func (f onDisk) Lstat() (os.FileInfo, error)  { return os.Lstat(f.at) }
func (f onDisk) Open() (io.ReadCloser, error) { return os.Open(f.at) }
