package connections

import (
	"flag"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// These tests wait for renewals and need little CPU time. With the default of one test per processor, a hundred runs would take a
	// quarter of an hour.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("12"); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
