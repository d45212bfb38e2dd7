package namespace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// reads are the requests that read, in their order.
func (a *api) reads() (all []string) {
	for _, c := range a.made("list", "watch") {
		all = append(all, strings.TrimSpace(c.verb+" "+c.kind+" "+c.selector))
	}
	return all
}

// A controller that was warmed has read all, keeps its caches from one Run to the next, and writes
// in none of the times between.
func TestWarmedControllerReadsNothingMore(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"))
		c, err := New(a.client(), Config{BundleFile: file, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			if err := c.Warm(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if c.bundle.current() == "" {
			t.Error("the bundle is not looked at, and a wrong one would not be reported")
		}
		cancel() // the caches stay
		want := []string{"watch configmaps metadata.name=" + ConfigMapName, "watch namespaces"}
		for range 3 {
			time.Sleep(time.Minute)
			if got := a.reads(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Fatalf("it reads %q, want %q", got, want)
			}
			writes := len(a.writes())
			end := running(t, c)
			synctest.Wait()
			if got := len(a.writes()) - writes; got != 1 {
				t.Errorf("%d writes right at its start, want that of the namespace without one", got)
			}
			if err := c.Run(t.Context()); !errors.Is(err, reconcile.ErrRunning) {
				t.Errorf("a second Run returned %v", err)
			}
			a.remove("configmaps/a/" + ConfigMapName)
			synctest.Wait()
			if a.bundle("a") == "" {
				t.Error("after a second Run was refused, changes cause nothing")
			}
			end()
			a.remove("configmaps/a/" + ConfigMapName)
		}
		c.Close()
		c.Close()
		synctest.Wait()
		if n := len(a.open()); n != 0 {
			t.Errorf("%d watches after Close", n)
		}
		// Without Warm they are Run's, and end with it.
		end := running(t, c)
		synctest.Wait()
		if len(a.open()) != 2 || len(a.reads()) != 4 {
			t.Errorf("%d watches of %q", len(a.open()), a.reads())
		}
		end()
		synctest.Wait()
		if n := len(a.open()); n != 0 {
			t.Errorf("%d watches after Run", n)
		}
	})
}

// While the API server refuses to be read, Warm ends with its context and names the cause, Run
// ends in good order, and both say it once.
func TestControllerThatCannotRead(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	for _, kind := range []string{"namespaces", "configmaps"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := newAPI(t, space("a"))
				refuse := true
				a.answer = func(c call) error {
					a.mu.Lock()
					defer a.mu.Unlock()
					if refuse && c.kind == kind && c.object == "" {
						return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no"))
					}
					return nil
				}
				c, err := New(a.client(), Config{BundleFile: file, Logger: slog.New(slog.NewTextHandler(&out, nil))})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("not led in time"))
				defer cancel()
				err = c.Warm(ctx)
				if err == nil || !strings.Contains(err.Error(), "not led in time") || !strings.Contains(err.Error(), "list "+kind) {
					t.Errorf("Warm returned %v", err)
				}
				end := running(t, c)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := len(a.writes()); got != 0 {
					t.Errorf("%d writes by a controller that knows not all", got)
				}
				if took := end(); took != 0 {
					t.Errorf("its end took %v", took)
				}
				for _, line := range []string{
					fmt.Sprintf(`level=WARN msg="permission is missing" verb="list %s" instead="no bundle is spread"`, kind),
					fmt.Sprintf(`level=WARN msg="permission is missing" verb="watch %s" instead="listing them every now and then"`, kind),
				} {
					if n := strings.Count(out.String(), line); n != 1 {
						t.Errorf("said %d times: %s\n%s", n, line, &out)
					}
				}
				a.mu.Lock()
				refuse = false
				a.mu.Unlock()
				end = running(t, c)
				time.Sleep(5 * time.Minute)
				if a.bundle("a") == "" {
					t.Error("nothing is spread once it may read")
				}
				if err := c.loop.Problem(); err != nil {
					t.Errorf("its problem is still %v", err)
				}
				end()
				c.Close()
			})
		})
	}
}

// A write that is not answered is waited for, so that nothing is written after Run, but not for
// ever; and as many are under way as there are workers.
func TestRunsEndIsBounded(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		for i := range 10 {
			a.put(space(fmt.Sprint("a", i)))
		}
		c, err := New(deafTo(a), Config{BundleFile: file, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		end := running(t, c)
		time.Sleep(time.Second)
		if got := len(a.writes()); got != 4 {
			t.Errorf("%d writes are under way", got)
		}
		if took := end(); took != 4*time.Second {
			t.Errorf("its end took %v, of which the writes were to be given up 5 s after they were sent", took)
		}
		if got := len(a.writes()); got != 4 {
			t.Errorf("%d writes after the stop", got-4)
		}
	})
}

// A failure is told of once, and that it is over.
func TestFailedWritesAreReported(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	maps := schema.GroupResource{Resource: "configmaps"}
	yes := true
	for name, test := range map[string]struct {
		there *corev1.ConfigMap
		want  string
	}{
		"create": {want: "creating ConfigMap a/" + ConfigMapName + ": configmaps"},
		"patch":  {bundleMap("a", func(*corev1.ConfigMap) {}), "repairing ConfigMap a/" + ConfigMapName + ": configmaps"},
		"immutable": {
			bundleMap("a", func(m *corev1.ConfigMap) { m.Immutable = &yes }), "which somebody made immutable: delete it to have it made anew: configmaps",
		},
		"mutable": {
			bundleMap("a", func(m *corev1.ConfigMap) { m.Immutable = new(bool) }), "repairing ConfigMap a/" + ConfigMapName + ": configmaps",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := newAPI(t, space("a"))
				if test.there != nil {
					a.put(test.there.DeepCopy())
				}
				tries := 0
				a.answer = func(c call) error {
					if c.object == "" {
						return nil
					}
					if tries++; tries < 5 {
						return apierrors.NewForbidden(maps, ConfigMapName, errors.New("no"))
					}
					return nil
				}
				c, err := New(a.client(), Config{BundleFile: file, Logger: slog.New(slog.NewTextHandler(&out, nil))})
				if err != nil {
					t.Fatal(err)
				}
				end := running(t, c)
				time.Sleep(time.Minute)
				end()
				if strings.Count(out.String(), "reconciling fails") != 1 || !strings.Contains(out.String(), test.want) {
					t.Errorf("no line with %q, or more than one:\n%s", test.want, &out)
				}
				if strings.Count(out.String(), "reconciling works again") != 1 || tries != 5 {
					t.Errorf("%d tries; in the end:\n%s", tries, &out)
				}
			})
		})
	}
}

// What fails because of the stop is no failure.
func TestAStopIsNotReported(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := newAPI(t, space("a"))
		c, err := New(deafTo(a), Config{BundleFile: file, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		end := running(t, c)
		time.Sleep(time.Second)
		end()
		if strings.Contains(out.String(), "WARN") {
			t.Errorf("reported:\n%s", &out)
		}
	})
}

// The ConfigMap is made with the label that istiod gives it, and nothing else.
func TestWhatIsMade(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"))
		end := controllerOn(t, a, file)
		synctest.Wait()
		defer end()
		a.mu.Lock()
		defer a.mu.Unlock()
		made, _ := a.objects["configmaps/a/"+ConfigMapName].(*corev1.ConfigMap)
		if made == nil || len(made.Labels) != 1 || made.Labels["istio.io/config"] != "true" || len(made.Data) != 1 || made.Data["root-cert.pem"] != content {
			t.Errorf("made %v", made)
		}
	})
}

// A repair leaves alone what is others'.
func TestWhatARepairLeaves(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"), bundleMap("a", func(m *corev1.ConfigMap) {
			m.Labels, m.Data["theirs"] = map[string]string{"theirs": "1"}, "2"
			m.BinaryData = map[string][]byte{BundleKey: {1}, "binary": {2}}
		}))
		end := controllerOn(t, a, file)
		synctest.Wait()
		defer end()
		a.mu.Lock()
		defer a.mu.Unlock()
		got := a.objects["configmaps/a/"+ConfigMapName].(*corev1.ConfigMap)
		if got.Labels["theirs"] != "1" || got.Data["theirs"] != "2" || len(got.BinaryData) != 1 || got.Data[BundleKey] != content {
			t.Errorf("it became %v", got)
		}
	})
}

// With a bundle that is not good yet nothing is written, and the first good one is spread within
// the interval to look at it in.
func TestTheFirstGoodBundleIsSpread(t *testing.T) {
	for name, interval := range map[string]time.Duration{"by default": 0, "as configured": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			file := bundleFileWith(t, "")
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, space("a"), space("b"))
				c, err := New(a.client(), Config{BundleFile: file, BundleInterval: interval, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				end := running(t, c)
				time.Sleep(10*time.Minute + time.Millisecond)
				if got := len(a.writes()); got != 0 {
					t.Errorf("%d writes without a bundle", got)
				}
				write(t, file, string(harness.CA(t)))
				began, wait := time.Now(), interval
				if wait == 0 {
					wait = time.Second
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				got := a.since(began)
				if len(got) != 2 || got[0] != wait-time.Millisecond || got[1] != got[0] {
					t.Errorf("written after %v, want that within %v", got, wait)
				}
				end()
			})
		})
	}
}

// A namespace that ends its termination, or is made anew, is nothing special.
func TestNamespacesComeAndGo(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		end := controllerOn(t, a, file)
		defer end()
		synctest.Wait()
		a.put(space("a"))
		synctest.Wait()
		if a.bundle("a") != content {
			t.Error("nothing in a namespace that comes late")
		}
		a.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
		synctest.Wait()
		a.remove("configmaps/a/" + ConfigMapName)
		time.Sleep(time.Hour)
		if a.bundle("a") != "" {
			t.Error("made in a namespace that terminates")
		}
		a.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}})
		synctest.Wait()
		if a.bundle("a") != content {
			t.Error("nothing after a change of the namespace's phase")
		}
		if got := len(a.writes()); got != 2 {
			t.Errorf("%d writes", got)
		}
	})
}
