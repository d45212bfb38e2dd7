package namespace

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Two installations that spread different bundles do not write as fast as the API server answers.
func TestTwoBundlesInOneCluster(t *testing.T) {
	ours, theirs := bundleFileWith(t, string(harness.CA(t))), bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"))
		a.setLag(10 * time.Millisecond)
		var ends []func() time.Duration
		for _, file := range []string{ours, theirs} {
			c, err := New(a.client(), Config{BundleFile: file})
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, running(t, c))
		}
		time.Sleep(5 * time.Minute)
		if n := len(a.writes()); n > 40 {
			t.Errorf("%d writes of one ConfigMap within 5 minutes", n)
		}
		ends[1]()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(a.writes()); a.bundle("a") == "" || n > 42 {
			t.Errorf("%d writes, and one bundle is not repaired", n)
		}
		ends[0]()
	})
}
