package connections

import (
	"flag"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// These tests wait for renewals, not for a processor; by default no more run at once than
	// there are processors, and a hundred runs would take a quarter of an hour.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("12"); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
