package fence

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// TestMain also is a Pod's process (see writer).
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "writer" {
		os.Exit(writer())
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
