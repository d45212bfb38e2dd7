package bootstrap

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Build is the build information of a program, from the Go toolchain.
type Build struct {
	// Version is a tag, a pseudo-version with a commit, or "(devel)" outside a repository. The linker can set it.
	Version string `json:"version"`
	// Revision and Time describe the commit. Modified reports uncommitted changes. They are empty outside a repository.
	Revision string `json:"revision"`
	Time     string `json:"time"`
	Modified bool   `json:"modified"`
	// Kubernetes is the version of client-go, such as 0.36.3 for Kubernetes 1.36.
	Kubernetes string `json:"kubernetes"`
	// Go is the version of the toolchain, Platform the target.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// releaseVersion overrides the version, for builds without a tag: -ldflags '-X
// incumbent.dev/incumbent/pilot/bootstrap.releaseVersion=1.2.3'.
var releaseVersion string

// ReadBuild returns the build information of the running program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok { // not built by the go command
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: cmp.Or(releaseVersion, info.Main.Version, "(devel)"), Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Path == "k8s.io/client-go" {
			b.Kubernetes = strings.TrimPrefix(m.Version, "v")
		}
	}
	return b
}

// String returns a line for users.
func (b Build) String() string {
	text := "pilot " + b.Version
	if minor, ok := strings.CutPrefix(b.Kubernetes, "0."); ok {
		text += ", Kubernetes 1." + minor
	}
	text += ", " + b.Go + ", " + b.Platform
	if b.Revision != "" {
		text += ", commit " + b.Revision + " of " + b.Time
	}
	if b.Modified {
		text += ", modified"
	}
	return text
}

// metric returns a gauge with the build information as labels.
func (b Build) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "incumbent_build_info",
		Help: "Always 1. The labels have the build information of the program.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "modified": fmt.Sprint(b.Modified), "goversion": b.Go, "platform": b.Platform,
		},
	}, func() float64 { return 1 })
}
