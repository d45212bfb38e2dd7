package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An object that another writer changes back each time is repaired at once three times, then less and
// less often, which is said once; the last repair holds as soon as the other one gives up.
func TestAContestedObjectIsRepairedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWriter(t, 0, configMap("a", "theirs"))
		var givenUp atomic.Bool
		undo := func() {
			if !givenUp.Load() {
				w.store.put(configMap("a", "theirs"))
			}
		}
		w.wrote = func() { time.AfterFunc(20*time.Millisecond, undo) }
		began := time.Now()
		end := running(t, c)
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
			t.Errorf("%v between the repairs of 5 minutes, want %v and then each 30 s", gaps, want)
		}
		givenUp.Store(true)
		time.Sleep(lastPause + time.Second)
		synctest.Wait()
		if got := w.cache.Get("n", "a").Data["data"]; got != "wanted" {
			t.Errorf("the other writer has given up, and it still says %q", got)
		}
		if n := strings.Count(w.log.String(), "another writer changes an object back"); n != 1 {
			t.Errorf("said %d times that it is contested", n)
		}
		// What comes much later is repaired at once again.
		time.Sleep(lastPause + contestGap)
		synctest.Wait()
		if n := len(w.cache.contests.of); n != 0 {
			t.Errorf("%d contests are remembered", n)
		}
		n := len(w.written())
		w.store.put(configMap("a", "theirs"))
		synctest.Wait()
		if len(w.written()) != n+1 {
			t.Errorf("a later change was not repaired at once, %v after the start", time.Since(began))
		}
		end()
	})
}

// Changes that differ, and the same change now and then, are made at once however many there are.
func TestChangesThatNobodyContests(t *testing.T) {
	for name, theirs := range map[string]func(i int) (data string, after time.Duration){
		"another content each time":  func(i int) (string, time.Duration) { return fmt.Sprint(i), time.Millisecond },
		"the same one now and then":  func(int) (string, time.Duration) { return "theirs", contestGap + time.Second },
		"the same one only so often": func(i int) (string, time.Duration) { return fmt.Sprint(i % 3 / 2), time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newWriter(t, 0)
				end := running(t, c)
				for i := range 20 {
					data, after := theirs(i)
					time.Sleep(after)
					w.store.put(configMap("a", data))
					synctest.Wait()
					if n := len(w.written()); n != i+1 {
						t.Fatalf("%d repairs after %d changes", n, i+1)
					}
				}
				end()
			})
		})
	}
}

func TestDigestOfAChange(t *testing.T) {
	from, to := configMap("a", "1"), configMap("a", "2")
	same := func(mutate func(from, to *corev1.ConfigMap) types.UID) bool {
		f, o := from.DeepCopy(), to.DeepCopy()
		in := mutate(f, o)
		return digest(in, f, o) == digest("", from, to)
	}
	if !same(func(f, o *corev1.ConfigMap) types.UID {
		f.ResourceVersion, o.ResourceVersion, o.UID, o.Generation = "7", "8", "u", 3
		return ""
	}) {
		t.Error("versions make two changes of one")
	}
	for name, mutate := range map[string]func(from, to *corev1.ConfigMap) types.UID{
		"what was there": func(f, _ *corev1.ConfigMap) types.UID { f.Data["data"] = "0"; return "" },
		"what is there":  func(_, o *corev1.ConfigMap) types.UID { o.Data["data"] = "0"; return "" },
		"what it is in":  func(_, _ *corev1.ConfigMap) types.UID { return "u" },
	} {
		if same(mutate) {
			t.Errorf("%s makes no difference", name)
		}
	}
}
