package play

import (
	"flag"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// Plays wait for leases, not for a processor.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("7"); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true, Audit: true})
}
