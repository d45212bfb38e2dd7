package namespace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func bundleMap(namespace string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace}, Data: map[string]string{}}
	change(m)
	return m
}

func space(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// controllerOn runs a controller on an API server, in a synctest bubble; end stops it and returns
// how long its end took.
func controllerOn(t *testing.T, a *api, file string) (end func() time.Duration) {
	t.Helper()
	c, err := New(a.client(), Config{BundleFile: file, Logger: slog.New(slog.DiscardHandler), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	return running(t, c)
}

func running(t *testing.T, c *Controller) (end func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() time.Duration {
		began := time.Now()
		cancel()
		<-ended
		return time.Since(began)
	}
}

func bundleFileWith(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// How many writes there are for what is found and answered, within ten minutes, while the caches
// learn of a write at once or late. An answer by which the cache is behind is believed for half a
// minute, and a refusal is tried again with back-off.
func TestWritesBySituation(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFileWith(t, content)
	maps := schema.GroupResource{Resource: "configmaps"}
	now := metav1.Now()
	terminating := apierrors.NewForbidden(maps, "a", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		there     *corev1.ConfigMap
		namespace *corev1.Namespace
		answer    error
		min, max  int
	}{
		"it is as it should be":        {there: bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = content })},
		"it is missing":                {min: 1, max: 1},
		"it differs":                   {there: bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" }), min: 1, max: 1},
		"it is empty":                  {there: bundleMap("a", func(*corev1.ConfigMap) {}), min: 1, max: 1},
		"its key is binary":            {there: bundleMap("a", func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{BundleKey: {1}} }), min: 1, max: 1},
		"it is being deleted":          {there: bundleMap("a", func(m *corev1.ConfigMap) { m.DeletionTimestamp, m.Finalizers = &now, []string{"x"} })},
		"excluded namespace":           {namespace: space("kube-system")},
		"namespace is being deleted":   {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now, Finalizers: []string{"x"}}}},
		"namespace terminates":         {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}},
		"it exists, they say":          {answer: apierrors.NewAlreadyExists(maps, ConfigMapName), min: 20, max: 21},
		"the namespace is gone":        {answer: apierrors.NewNotFound(maps, ConfigMapName), min: 20, max: 21},
		"the namespace is going":       {answer: terminating, min: 20, max: 21},
		"gone before its repair":       {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewNotFound(maps, ConfigMapName), min: 20, max: 21},
		"refused":                      {answer: apierrors.NewForbidden(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
		"a conflict at its repair":     {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewConflict(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
		"no answer":                    {answer: errors.New("connection refused"), min: 25, max: 32},
		"a repair is refused, for now": {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewInternalError(errors.New("no")), min: 25, max: 32},
	} {
		for _, lag := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprint(name, ", seen after ", lag), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAPI(t)
					a.setLag(lag)
					if test.namespace == nil {
						test.namespace = space("a")
					}
					a.put(test.namespace.DeepCopy())
					if test.there != nil {
						a.put(test.there.DeepCopy())
					}
					a.answer = func(c call) error {
						if c.kind != "configmaps" || c.object == "" {
							return nil
						}
						return test.answer
					}
					end := controllerOn(t, a, file)
					for range 10 { // what changes nothing that matters has it looked at again
						time.Sleep(time.Second)
						changed := test.namespace.DeepCopy()
						changed.Labels = map[string]string{"changed": time.Now().Format("05")}
						a.put(changed)
					}
					time.Sleep(10*time.Minute - 10*time.Second)
					synctest.Wait()
					if got := len(a.writes()); got < test.min || got > test.max {
						t.Errorf("%d writes in ten minutes, want %d to %d", got, test.min, test.max)
					}
					if test.answer == nil && test.min == 1 && a.bundle("a") != content {
						t.Errorf("it carries %q", a.bundle("a"))
					}
					if took := end(); took > time.Second {
						t.Errorf("its end took %v", took)
					}
				})
			})
		}
	}
}

// The waits of a namespace whose writes fail double, and begin anew after a success.
func TestFailedWritesBackOffAndBeginAnew(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex
			tries []time.Time
			fails = true
		)
		set := func(f bool) { // from now on, and counted anew
			mu.Lock()
			defer mu.Unlock()
			fails, tries = f, nil
		}
		a := newAPI(t, space("a"))
		a.answer = func(c call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.verb != "create" {
				return nil
			}
			tries = append(tries, time.Now())
			if fails {
				return errors.New("no")
			}
			return nil
		}
		end := controllerOn(t, a, file)
		check := func(n int) {
			t.Helper()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(tries) < n {
				t.Fatalf("%d tries", len(tries))
			}
			want := firstRetry
			for i := 1; i < len(tries); i++ {
				wait := tries[i].Sub(tries[i-1])
				if wait != want {
					t.Errorf("wait %d is %v, want %v", i, wait, want)
				}
				want = min(2*want, lastRetry)
			}
		}
		check(20)
		set(false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if a.bundle("a") == "" {
			t.Fatal("it was not made")
		}
		set(true)
		a.remove("configmaps/a/" + ConfigMapName)
		check(20)
		end()
	})
}

// Run returns when the write that is under way has been answered, and after that nothing is
// written, whatever changes.
func TestRunAwaitsItsWriteAndThenNothingIsWritten(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"), space("b"))
		a.answer = func(c call) error {
			if c.verb == "create" {
				time.Sleep(3 * time.Second)
			}
			return nil
		}
		end := controllerOn(t, a, file)
		time.Sleep(time.Second) // one is being written, the other one waits
		if took := end(); took != 2*time.Second {
			t.Errorf("its end took %v, want the 2 s until the answer", took)
		}
		if got := len(a.writes()); got != 1 {
			t.Errorf("%d writes, want the one that was under way", got)
		}
		a.put(space("late"))
		if err := os.WriteFile(file, harness.CA(t), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := len(a.writes()) - 1; got != 0 {
			t.Errorf("%d writes after the end", got)
		}
	})
}

// A changed bundle is one write for each namespace.
func TestAChangedBundleIsOneWriteEach(t *testing.T) {
	file := bundleFileWith(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, space("a"), space("b"))
		end := controllerOn(t, a, file)
		time.Sleep(time.Minute)
		if err := os.WriteFile(file, harness.CA(t), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(a.writes()); got != 4 {
			t.Errorf("%d writes, want two for each of two namespaces", got)
		}
		end()
	})
}
