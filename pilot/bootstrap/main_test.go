package bootstrap

import (
	"testing"

	"go.opencensus.io/stats/view"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{WithoutControllers: true, APIServerArgs: []string{"--runtime-config=coordination.k8s.io/v1beta1=true"}})
}
