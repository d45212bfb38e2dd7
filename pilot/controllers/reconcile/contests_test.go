package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestContests_Pause(t *testing.T) {
	// The other writer writes the same or other content each time.
	for _, theirs := range []func(i int) string{func(int) string { return "theirs" }, strconv.Itoa} {
		testPause(t, theirs)
	}
}

func testPause(t *testing.T, theirs func(i int) string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWriter(t, 0, configMap("a", "theirs"))
		var stopped atomic.Bool
		revert := func() {
			if !stopped.Load() {
				w.store.put(configMap("a", theirs(len(w.written()))))
			}
		}
		w.after = func() { time.AfterFunc(20*time.Millisecond, revert) }
		stop := start(t, c)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		var gaps []time.Duration
		writes := w.written()
		for i := range writes[1:] {
			gaps = append(gaps, writes[i+1].Sub(writes[i]).Round(time.Second))
		}
		want := []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 30, 30}
		for i := range want {
			want[i] *= time.Second
		}
		if len(gaps) < len(want) || !slices.Equal(gaps[:len(want)], want) || len(gaps) > len(want)+8 {
			t.Errorf("gaps between repairs: %v, want %v and then 30 s", gaps, want)
		}
		stopped.Store(true)
		time.Sleep(contestPause + time.Second)
		synctest.Wait()
		if got := w.cache.Get("n", "a").Data["data"]; got != "wanted" {
			t.Errorf("after the other writer has stopped: %q", got)
		}
		if n := w.log.Count("another writer keeps reverting an object"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		time.Sleep(contestPause + contestGap)
		synctest.Wait()
		if n := len(w.cache.contests.of); n != 0 {
			t.Errorf("%d contests left", n)
		}
		n := len(w.written())
		w.store.put(configMap("a", "theirs"))
		synctest.Wait()
		if len(w.written()) != n+1 {
			t.Error("a later change is not repaired immediately")
		}
		stop()
	})
}

func TestContests_NoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWriter(t, 0)
		stop := start(t, c)
		for i := range 20 {
			time.Sleep(contestGap + time.Second)
			w.store.put(configMap("a", "theirs"))
			synctest.Wait()
			if n := len(w.written()); n != i+1 {
				t.Fatalf("%d repairs after %d changes", n, i+1)
			}
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		none := func(key string) { t.Errorf("retry of %q", key) }
		c := newContests(func(key string, _ types.NamespacedName) { none(key) }, none)
		c.wrote(types.NamespacedName{Name: "a"}, "", "a", []byte(`{"a":1}`))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.of) > 0 {
			t.Errorf("%d contests left", len(c.of))
		}
	})
}

// Repairs of different fields in turn are repairs of one object. New values are not repairs.
func TestContests_Fields(t *testing.T) {
	for name, x := range map[string]struct {
		patch     string
		values    func(i int) any
		contested bool
	}{
		"fields in turn": {`{"f%d":1}`, func(i int) any { return i % 2 }, true},
		"new values":     {`{"a":%d}`, func(i int) any { return i }, false},
		"two values":     {`{"a":%d}`, func(i int) any { return i % 2 }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			contested := 0
			c := newContests(func(string, types.NamespacedName) { contested++ }, func(string) {})
			for i := range 2 * contestedAfter {
				c.wrote(types.NamespacedName{Name: "a"}, "", "a", fmt.Appendf(nil, x.patch, x.values(i)))
			}
			if (contested == 1) != x.contested || contested > 1 {
				t.Errorf("%s: contested %d times", name, contested)
			}
			time.Sleep(contestPause + contestGap)
			synctest.Wait()
		})
	}
}

// A write that changes only the observed generation is no repair.
func TestContests_Transient(t *testing.T) {
	c := newContests(func(string, types.NamespacedName) { t.Error("contested") }, func(string) {})
	deployment := func(generation int64) *appsv1.Deployment {
		return &appsv1.Deployment{Status: appsv1.DeploymentStatus{ObservedGeneration: generation, Replicas: 1}}
	}
	for i := range int64(2 * contestedAfter) {
		c.wrote(types.NamespacedName{Name: "a"}, "", "a", changes(deployment(i), deployment(i+1)))
	}
	if n := len(c.of); n != 0 {
		t.Errorf("%d contests", n)
	}
}

func TestChanges(t *testing.T) { synctest.Test(t, testChanges) }

func testChanges(t *testing.T) {
	object := func(parts ...string) *corev1.ConfigMap {
		c := configMap("a", "")
		c.Data = map[string]string{}
		for i := 0; i < len(parts); i += 2 {
			c.Data[parts[i]] = parts[i+1]
		}
		return c
	}
	// repeats reports whether a second write counts as a repair of the first.
	repeats := func(in types.UID, first, second []byte) bool {
		c := newContests(func(string, types.NamespacedName) {}, func(string) {})
		c.wrote(types.NamespacedName{Name: "a"}, "u", "a", first)
		c.wrote(types.NamespacedName{Name: "a"}, in, "a", second)
		return c.of[types.NamespacedName{Name: "a"}].times == 2
	}
	ours := changes(object("a", "1"), object("a", "2"))
	later := object("a", "2")
	later.ResourceVersion, later.UID, later.Generation = "8", "other", 3
	for name, x := range map[string]struct {
		in       types.UID
		from, to *corev1.ConfigMap
		repair   bool
	}{
		"the same":              {"u", object("a", "1"), object("a", "2"), true},
		"another old value":     {"u", object("a", "7"), object("a", "2"), true},
		"removed by the other":  {"u", object(), object("a", "2"), true},
		"another field changed": {"u", object("a", "7", "b", "9"), object("a", "2", "b", "9"), true},
		"transient metadata":    {"u", object("a", "1"), later, true},
		"another new value":     {"u", object("a", "1"), object("a", "3"), false},
		"one more field":        {"u", object("a", "1"), object("a", "2", "b", "1"), false},
		"another namespace":     {"v", object("a", "1"), object("a", "2"), false},
	} {
		if got := repeats(x.in, ours, changes(x.from, x.to)); got != x.repair {
			t.Errorf("%s: repair %v", name, got)
		}
	}
	status := func(generation int) any {
		return map[string]any{"status": map[string]any{"phase": "a", "conditions": []any{map[string]any{"observedGeneration": generation}}}}
	}
	if !repeats("u", changes(nil, status(2)), changes(nil, status(1))) {
		t.Error("changes depend on observedGeneration")
	}
}
