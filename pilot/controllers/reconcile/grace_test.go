package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestGrace(t *testing.T) {
	const has = true
	for name, test := range map[string]struct {
		// steps have a source, whether it has a value, the time since the last step, and the wanted result.
		steps   []string
		retries int
	}{
		"recreated with a value":                  {steps: []string{"a true 0s false", " false 1m true", "b false 1m true", "b true 1m false", "b false 1h false"}},
		"recreated without a value":               {steps: []string{"a true 0s false", " false 1m true", "b false 3m true", "b false 3m false"}, retries: 1},
		"the object loses its value":              {steps: []string{"a true 0s false", "a false 1m false"}},
		"deleted":                                 {steps: []string{"a true 0s false", " false 1m true", " false 5m false"}, retries: 1},
		"unknown past, for example after a start": {steps: []string{"b false 0s true", "b false 4m true", "b false 2m false"}, retries: 1},
		"recreated again":                         {steps: []string{"a true 0s false", "b false 1m true", "b true 1m false", "c false 1h true"}, retries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var retried []string
				g := NewGrace(func(key string) { retried = append(retried, key) })
				for i, step := range test.steps {
					source, rest := step[:1], step[1:]
					if source == " " {
						source, rest = "", step
					}
					var value, want bool
					var after string
					if _, err := fmt.Sscan(rest, &value, &after, &want); err != nil {
						t.Fatal(err)
					}
					wait, err := time.ParseDuration(after)
					harness.Must(t, err)
					<-time.After(wait)
					synctest.Wait()
					if got := g.Keeps("x", types.UID(source), value == has); got != want {
						t.Errorf("step %d, %q: got %v", i, step, got)
					}
				}
				<-time.After(time.Hour)
				synctest.Wait()
				if len(retried) != test.retries || slices.ContainsFunc(retried, func(key string) bool { return key != "x" }) {
					t.Errorf("retried %q, want %d times", retried, test.retries)
				}
				if g.Forget("x"); !g.Keeps("x", "z", false) {
					t.Error("Forget keeps the state")
				}
				<-time.After(time.Hour)
			})
		})
	}
}
