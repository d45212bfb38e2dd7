package reconcile

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

func TestDerive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"), configMap("b", "1"))
		c, cached := newController(t, &recorder{}, s, nil)
		computed := 0
		value := Derive(cached, func(o *corev1.ConfigMap) string {
			computed++
			return o.Name + o.Data["data"]
		})
		stop := start(t, c)
		check := func(what, name, want string, times int) {
			t.Helper()
			synctest.Wait()
			before := computed
			for range 3 {
				if got := value(cached.Get("n", name)); got != want {
					t.Errorf("%s: value is %q, want %q", what, got, want)
				}
			}
			if computed-before != times {
				t.Errorf("%s: computed %d times, want %d", what, computed-before, times)
			}
		}
		kept := func() (n int) {
			cached.derived[0].Range(func(any, any) bool { n++; return true })
			return n
		}
		check("first object", "a", "a1", 1)
		check("second object", "b", "b1", 1)
		check("again", "a", "a1", 0)
		s.put(configMap("a", "2"))
		check("changed", "a", "a2", 1)
		check("other object", "b", "b1", 0)

		last := cached.Get("n", "b")
		s.remove("b")
		synctest.Wait()
		if kept() != 1 {
			t.Errorf("%d values after a deletion", kept())
		}
		if got := value(last); got != "b1" || kept() != 1 {
			t.Errorf("value of a deleted object is %q, %d values", got, kept())
		}
		stop()
		if kept() != 0 {
			t.Errorf("%d values after the stop", kept())
		}
	})
}
