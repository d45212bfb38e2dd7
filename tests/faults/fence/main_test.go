package fence

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "writer" {
		os.Exit(writer())
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
