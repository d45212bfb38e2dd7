package namespace

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// As reconcile has them.
const (
	unseenLimit           = 30 * time.Second
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
)

// since are the times of the writes so far, from a moment on.
func (a *api) since(began time.Time) (waits []time.Duration) {
	for _, c := range a.writes() {
		if !c.at.Before(began) {
			waits = append(waits, c.at.Sub(began))
		}
	}
	return waits
}

// What a write left is known before the caches show it, and what others do is known once they do.
func TestWhatTheCachesDoNotShowYet(t *testing.T) {
	const (
		lag  = 10 * time.Second
		path = "configmaps/a/" + ConfigMapName
	)
	one, two := string(harness.CA(t)), string(harness.CA(t))
	again := func(a *api, _ string) { // the namespace is deleted and made anew, with all in it
		a.remove(path)
		a.remove("namespaces/a")
		a.put(space("a"))
	}
	for name, test := range map[string]struct {
		there *corev1.ConfigMap // before the controller starts
		// do comes 2.5 s after the first write, which is right away.
		do     func(a *api, file string)
		writes []time.Duration // since then; a file is looked at each second
		bundle string
	}{
		"nothing happens": {do: func(*api, string) {}, bundle: one},
		"the bundle changes": {
			do: func(a *api, file string) { write(t, file, two) }, writes: []time.Duration{time.Second / 2}, bundle: two,
		},
		"the bundle changes, of one that was repaired": {
			there: bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" }),
			do:    func(a *api, file string) { write(t, file, two) }, writes: []time.Duration{time.Second / 2}, bundle: two,
		},
		"another deletes it": {
			do: func(a *api, _ string) { a.remove(path) }, writes: []time.Duration{lag}, bundle: one,
		},
		"another changes it": {
			do:     func(a *api, _ string) { a.put(bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" })) },
			writes: []time.Duration{lag}, bundle: one,
		},
		"its namespace is made anew": {do: again, writes: []time.Duration{0}, bundle: one},
		"another deletes it while there is no watch": {
			do: func(a *api, _ string) {
				a.cut()
				a.remove(path)
			},
			writes: []time.Duration{unseenLimit - 2500*time.Millisecond}, bundle: one,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := bundleFileWith(t, one)
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, space("a"))
				if test.there != nil {
					a.put(test.there.DeepCopy())
				}
				a.setLag(lag)
				end := controllerOn(t, a, file)
				defer end()
				time.Sleep(2500 * time.Millisecond)
				if got := len(a.writes()); got != 1 {
					t.Fatalf("%d writes", got)
				}
				began := time.Now()
				test.do(a, file)
				for range 600 { // it is looked at again each second
					time.Sleep(time.Second)
					a.touch()
				}
				synctest.Wait()
				got := a.since(began)
				if len(got) != len(test.writes) {
					t.Fatalf("writes after %v, want %v", got, test.writes)
				}
				for i := range got {
					if got[i] < test.writes[i] || got[i] > test.writes[i]+time.Second {
						t.Errorf("writes after %v, want %v", got, test.writes)
					}
				}
				if a.bundle("a") != test.bundle {
					t.Errorf("it carries %q", a.bundle("a"))
				}
			})
		})
	}
}

// touch changes the namespace in a way that has it looked at, and does not matter.
func (a *api) touch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.objects["namespaces/a"].(*corev1.Namespace); ok {
		n := before.DeepCopy()
		if n.Status.Phase = corev1.NamespaceActive; before.Status.Phase == n.Status.Phase {
			n.Status.Phase = ""
		}
		a.store(n)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
}

// By these answers the cache is behind. What it shows next is right, and it is not asked for
// earlier than that.
func TestAnswersByWhichTheCacheIsBehind(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	maps := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		there  *corev1.ConfigMap
		answer error // to the first write
		shown  func(*api)
		writes []time.Duration
	}{
		"it exists, and is right": {
			answer: apierrors.NewAlreadyExists(maps, ConfigMapName),
			shown:  func(a *api) { a.put(bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = content })) },
			writes: []time.Duration{0},
		},
		"it exists, and is wrong": {
			answer: apierrors.NewAlreadyExists(maps, ConfigMapName),
			shown:  func(a *api) { a.put(bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" })) },
			writes: []time.Duration{0, 5 * time.Second},
		},
		"there is none to repair": {
			there:  bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" }),
			answer: apierrors.NewNotFound(maps, ConfigMapName),
			shown:  func(a *api) { a.remove("configmaps/a/" + ConfigMapName) },
			writes: []time.Duration{0, 5 * time.Second},
		},
		"the namespace goes": {
			answer: apierrors.NewNotFound(maps, ConfigMapName),
			shown:  func(a *api) { a.remove("namespaces/a") },
			writes: []time.Duration{0},
		},
		"the namespace goes and comes": {
			answer: apierrors.NewNotFound(maps, ConfigMapName),
			shown: func(a *api) {
				a.remove("namespaces/a")
				a.put(space("a"))
			},
			writes: []time.Duration{0, 5 * time.Second},
		},
		"it was refused, and then made by another": {
			answer: apierrors.NewForbidden(maps, ConfigMapName, errors.New("no")),
			shown:  func(a *api) { a.put(bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = content })) },
			writes: []time.Duration{0, 100 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, space("a"))
				if test.there != nil {
					a.put(test.there.DeepCopy())
				}
				var n atomic.Int32
				a.answer = func(c call) error {
					if c.object == "" {
						return nil
					}
					if n.Add(1) == 1 {
						return test.answer
					}
					return nil
				}
				began := time.Now()
				end := controllerOn(t, a, file)
				defer end()
				for range 5 {
					time.Sleep(time.Second)
					if n.Load() == 1 {
						a.touch()
					}
				}
				test.shown(a)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				got := a.since(began)
				if len(got) != len(test.writes) {
					t.Fatalf("writes after %v, want %v", got, test.writes)
				}
				for i := range got {
					if got[i] != test.writes[i] {
						t.Errorf("writes after %v, want %v", got, test.writes)
					}
				}
				if bundle := a.bundle("a"); len(got) > 1 && bundle != content {
					t.Errorf("it carries %q", bundle)
				}
			})
		})
	}
}

// A refused write waits out its back-off, whatever changes that does not matter.
func TestChangesThatDoNotMatterCauseNoTry(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		there := bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" })
		a := newAPI(t, space("a"), there)
		a.answer = func(c call) error {
			if c.object == "" {
				return nil
			}
			return errors.New("no")
		}
		end := controllerOn(t, a, file)
		defer end()
		time.Sleep(10 * time.Minute)
		before := len(a.writes())
		for range 20 { // in 20 s there is one try at most
			time.Sleep(time.Second)
			changed := bundleMap("a", func(m *corev1.ConfigMap) {
				m.Labels = map[string]string{"changed": time.Now().Format("150405")}
				m.Data[BundleKey], m.Data["theirs"] = "x", time.Now().Format("150405")
			})
			a.put(changed)
			again := space("a")
			again.Labels = map[string]string{"changed": time.Now().Format("150405")}
			a.put(again)
		}
		synctest.Wait()
		if got := len(a.writes()) - before; got > 1 {
			t.Errorf("%d tries in 20 s", got)
		}
		before = len(a.writes())
		a.put(bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "y" }))
		synctest.Wait()
		if got := len(a.writes()) - before; got != 1 {
			t.Errorf("%d tries after a change that matters", got)
		}
	})
}

// What is deleted while there is no watch is missed once there is one again.
func TestADeletionThatNoEventTellsOf(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"))
		end := controllerOn(t, a, file)
		defer end()
		time.Sleep(time.Hour)
		a.cut()
		a.remove("configmaps/a/" + ConfigMapName)
		time.Sleep(unseenLimit)
		synctest.Wait()
		if got := len(a.writes()); got != 2 || a.bundle("a") == "" {
			t.Errorf("%d writes", got)
		}
	})
}

// A server that knows no watches which begin with a list is listed.
func TestAServerWithoutInitialEvents(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := newAPI(t, space("a"))
		a.old = true
		c, err := New(a.client(), Config{BundleFile: file, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		end := running(t, c)
		time.Sleep(time.Minute)
		a.put(space("b"))
		synctest.Wait()
		if a.bundle("a") != content || a.bundle("b") != content {
			t.Error("it is not spread")
		}
		lists := a.made("list")
		slices.SortFunc(lists, func(a, b call) int { return strings.Compare(a.kind, b.kind) })
		// A watch that comes after the next change is refused, and then there is one more.
		lists = slices.CompactFunc(lists, func(a, b call) bool { return a.kind == b.kind })
		if len(lists) != 2 || lists[0].selector != "metadata.name="+ConfigMapName || lists[1].selector != "" {
			t.Errorf("it lists %+v", lists)
		}
		end()
	})
}
