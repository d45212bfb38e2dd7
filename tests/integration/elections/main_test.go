package elections

import (
	"flag"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// The tests wait for leases and watches, not for a processor.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("16"); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
