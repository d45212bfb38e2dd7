package bootstrap

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestReadBuild(t *testing.T) {
	here := runtime.GOOS + "/" + runtime.GOARCH
	for text, test := range map[string]struct {
		info debug.BuildInfo
		want Build
	}{
		"pilot v1.2.3, Kubernetes 1.36.3, go1.26.8, " + here + ", commit abc of 2026-01-02T03:04:05Z, modified": {
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Deps: []*debug.Module{
				{Path: "k8s.io/client-go", Version: "v0.0.0", Replace: &debug.Module{Path: "k8s.io/client-go", Version: "v0.36.3"}},
			}, Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
			}},
			Build{Version: "v1.2.3", Revision: "abc", Time: "2026-01-02T03:04:05Z", Modified: true, Kubernetes: "0.36.3", Go: "go1.26.8", Platform: here},
		},
		"pilot (devel), go1.27, " + here: {debug.BuildInfo{GoVersion: "go1.27"}, Build{Version: "(devel)", Go: "go1.27", Platform: here}},
	} {
		if got := buildOf(&test.info); got != test.want || got.String() != text {
			t.Errorf("got %+v, %s\nwant %+v, %s", got, got, test.want, text)
		}
	}
	releaseVersion = "1.2.3"
	defer func() { releaseVersion = "" }()
	if release := ReadBuild(); release.Version != "1.2.3" {
		t.Errorf("with releaseVersion 1.2.3 the version is %s", release.Version)
	}
}
