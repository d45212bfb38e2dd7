package bootstrap

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Build is what a program was built of, as the Go toolchain noted it in the program.
type Build struct {
	// Version is the module's: a tag, a pseudo-version that names a commit, or "(devel)"
	// where the sources lay in no repository; or what the linker was told.
	Version string `json:"version"`
	// Revision is the commit and Time is the commit's; Modified: there were changes that
	// were not committed. Empty and false where the sources lay in no repository.
	Revision string `json:"revision"`
	Time     string `json:"time"`
	Modified bool   `json:"modified"`
	// Go is the toolchain's version, Platform is what it built for.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// releaseVersion is what a release is called that the toolchain finds no tag of: -ldflags '-X incumbent.dev/incumbent/pilot/bootstrap.releaseVersion=1.2.3'.
var releaseVersion string

// ReadBuild reads the running program's.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok { // built by something that is not the go command
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if releaseVersion != "" {
		b.Version = releaseVersion
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
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
	return b
}

// String is for people.
func (b Build) String() string {
	text := fmt.Sprintf("pilot %s, %s, %s", b.Version, b.Go, b.Platform)
	if b.Revision != "" {
		text += ", commit " + b.Revision + " of " + b.Time
	}
	if b.Modified {
		text += ", modified"
	}
	return text
}

// metric is 1, with what the program was built of as labels.
func (b Build) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "incumbent_build_info",
		Help: "What this program was built of: always 1.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "modified": fmt.Sprint(b.Modified), "goversion": b.Go, "platform": b.Platform,
		},
	}, func() float64 { return 1 })
}
