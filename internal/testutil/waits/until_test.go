package waits

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing is a test that notes how it was ended.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestUntil(t *testing.T) {
	for name, test := range map[string]struct {
		holdsAfter, took time.Duration
		said             string
	}{
		"at once":  {},
		"later":    {holdsAfter: time.Second, took: time.Second},
		"too late": {holdsAfter: 2 * time.Minute, took: time.Minute, said: "not within 1m0s: it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				inner := &failing{TB: t}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					Until(inner, "it", func() bool { return time.Since(began) >= test.holdsAfter })
				}()
				<-ended
				if took := time.Since(began); took != test.took || inner.said != test.said {
					t.Errorf("after %v it says %q", took, inner.said)
				}
			})
		})
	}
}
