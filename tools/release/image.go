package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// description describes an image.
type description struct {
	// program is the file of the server. It becomes the entry point.
	program  string
	platform v1.Platform
	// licence is the license file.
	licence, version string
	source
}

// imageName is the name of the program and of the image.
const imageName = "pilot"

// unprivileged is the numeric user ID, so that a kubelet can verify that it is not root.
const unprivileged = 65532

// build creates the image.
func (d description) build() (v1.Image, error) {
	program, err := os.ReadFile(d.program)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	licence, err := os.ReadFile(d.licence)
	if err != nil {
		return nil, fmt.Errorf("read license: %w", err)
	}
	layer, err := d.layer(file{imageName, 0o755, program}, file{"LICENSE", 0o644, licence})
	if err != nil {
		return nil, err
	}
	// Use OCI media types. An empty image has Docker media types.
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: d.time}, CreatedBy: "incumbent.dev/incumbent/tools/release"},
	})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: d.time}
	file.OS, file.Architecture, file.Variant = d.platform.OS, d.platform.Architecture, d.platform.Variant
	file.Config = v1.Config{
		Entrypoint: []string{"/" + imageName}, User: fmt.Sprintf("%d:%[1]d", unprivileged), WorkingDir: "/", Labels: d.labels(),
		ExposedPorts: map[string]struct{}{"15014/tcp": {}},
	}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, d.labels()).(v1.Image)
	if !ok {
		return nil, errors.New("annotated image has an unexpected type")
	}
	return annotated, nil
}

// labels returns the OCI labels.
func (d description) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    imageName,
		"org.opencontainers.image.version":  d.version,
		"org.opencontainers.image.revision": d.revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  d.time.Format(time.RFC3339),
	}
}

// layer creates a layer.
func (d description) layer(files ...file) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := d.tar(&packed, files...); err != nil {
		return nil, err
	}
	content := packed.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
}

// write replaces the layout by images and returns their digests.
func write(folder string, all []description) ([]v1.Hash, error) {
	// Old images may have other sources.
	if entries, err := os.ReadDir(folder); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(folder, "oci-layout")); err != nil {
			return nil, fmt.Errorf("-out %s has other files and no OCI layout. Set an empty folder", folder)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	into, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, err
	}
	// One index of all platforms, as registries have it. Tools that copy one image expect one entry in the layout.
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var names []v1.Hash
	for _, d := range all {
		image, err := d.build()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &d.platform}})
		name, err := image.Digest()
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, into.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": all[0].version}))
}
