package reconcile

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestContests_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWriter(t, 0, configMap("a", "theirs"))
		var stopped atomic.Bool
		revert := func() {
			if !stopped.Load() {
				w.store.put(configMap("a", "theirs"))
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
		want := []time.Duration{0, 0, 1, 2, 4, 8, 16, 30, 30}
		for i := range want {
			want[i] *= time.Second
		}
		if len(gaps) < len(want) || !slices.Equal(gaps[:len(want)], want) || len(gaps) > len(want)+8 {
			t.Errorf("gaps between repairs: %v, want %v and then 30 s", gaps, want)
		}
		stopped.Store(true)
		time.Sleep(lastPause + time.Second)
		synctest.Wait()
		if got := w.cache.Get("n", "a").Data["data"]; got != "wanted" {
			t.Errorf("after the other writer has stopped: %q", got)
		}
		if n := w.log.Count("another writer keeps reverting an object"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		time.Sleep(lastPause + contestGap)
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
	for times := 8; times < 200; times++ {
		if got := pauseAfter(times); got != lastPause {
			t.Errorf("pause after %d changes is %v", times, got)
		}
	}
}

func TestContests_NoPause(t *testing.T) {
	for name, theirs := range map[string]func(i int) (data string, after time.Duration){
		"other content each time": func(i int) (string, time.Duration) { return fmt.Sprint(i), time.Millisecond },
		"same content, rarely":    func(int) (string, time.Duration) { return "theirs", contestGap + time.Second },
		"same content twice":      func(i int) (string, time.Duration) { return fmt.Sprint(i % 3 / 2), time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newWriter(t, 0)
				stop := start(t, c)
				for i := range 20 {
					data, after := theirs(i)
					time.Sleep(after)
					w.store.put(configMap("a", data))
					synctest.Wait()
					if n := len(w.written()); n != i+1 {
						t.Fatalf("%d repairs after %d changes", n, i+1)
					}
				}
				stop()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newContests(slog.New(slog.DiscardHandler), func(key string) { t.Errorf("retry of %q", key) })
		c.changed("things", types.NamespacedName{Name: "a"}, "a", [16]byte{1})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.of) > 0 {
			t.Errorf("%d contests left", len(c.of))
		}
	})
}

func TestDigest(t *testing.T) {
	same := func(change func(from, to *corev1.ConfigMap) types.UID) bool {
		from := configMap("a", "1")
		to := configMap("a", "2")
		before := digest("", from, to)
		return digest(change(from, to), from, to) == before
	}
	if !same(func(from, to *corev1.ConfigMap) types.UID {
		from.ResourceVersion = "7"
		to.ResourceVersion = "8"
		to.UID = "u"
		to.Generation = 3
		return ""
	}) {
		t.Error("digest depends on transient metadata")
	}
	for name, change := range map[string]func(from, to *corev1.ConfigMap) types.UID{
		"old content":   func(from, _ *corev1.ConfigMap) types.UID { from.Data["data"] = "0"; return "" },
		"new content":   func(_, to *corev1.ConfigMap) types.UID { to.Data["data"] = "0"; return "" },
		"namespace UID": func(_, _ *corev1.ConfigMap) types.UID { return "u" },
	} {
		if same(change) {
			t.Errorf("digest does not depend on the %s", name)
		}
	}
	status := func(generation int) any {
		return map[string]any{"status": map[string]any{"observedGeneration": generation}}
	}
	if digest("u", nil, status(1)) != digest("u", nil, status(2)) {
		t.Error("digest depends on observedGeneration")
	}
}
