package elections

import (
	"flag"
	"os"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == replicaRole {
		os.Exit(replicaProcess())
	}
	// These tests wait for leases and watches, not for a processor.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("16"); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
