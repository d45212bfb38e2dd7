package witness

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv("CANDIDATE") != "" {
		candidate()
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
