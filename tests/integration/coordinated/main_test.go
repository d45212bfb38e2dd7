package coordinated

import (
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// feature are the arguments that enable the feature.
var feature = []string{"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"}

func TestMain(m *testing.M) {
	cluster.Main(m, cluster.Options{APIServerArgs: feature})
}
