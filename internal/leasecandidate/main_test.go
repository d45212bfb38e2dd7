package leasecandidate

import (
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	cluster.Main(m, cluster.Options{WithoutControllers: true, APIServerArgs: []string{
		"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true",
	}})
}
