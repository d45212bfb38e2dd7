package namespace

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// double is a client of a fake clientset: what is tested here is when the controller writes, not
// what an API server makes of it.
type double struct{ *fake.Clientset }

func (d double) Kube() kubernetes.Interface { return d.Clientset }
func (d double) Dynamic() dynamic.Interface { return nil }
func (d double) RESTConfig() *rest.Config   { return nil }

// writes are those that the controller sent.
func (d double) writes() (all []clienttesting.Action) {
	for _, a := range d.Actions() {
		if a.GetVerb() == "create" || a.GetVerb() == "patch" {
			all = append(all, a)
		}
	}
	return all
}

func bundleMap(namespace string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace}, Data: map[string]string{}}
	change(m)
	return m
}

// controllerOn runs a controller on objects, in a synctest bubble; end stops it and returns how
// long its end took.
func controllerOn(t *testing.T, file string, react clienttesting.ReactionFunc, objects ...runtime.Object) (d double, end func() time.Duration) {
	t.Helper()
	d = double{fake.NewSimpleClientset(objects...)} //nolint:staticcheck // it converts no types, and is fast
	if react != nil {
		for _, verb := range []string{"create", "patch"} {
			d.PrependReactor(verb, "configmaps", react)
		}
	}
	c, err := New(d, Config{BundleFile: file, Logger: slog.New(slog.DiscardHandler), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return d, func() time.Duration {
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

// How many writes there are for what is found and answered, within ten minutes. The first events
// of the caches may make it look again, up to twice, at what its write did not change.
func TestWritesBySituation(t *testing.T) {
	content := certificate(t, 1)
	file := bundleFileWith(t, content)
	maps := schema.GroupResource{Resource: "configmaps"}
	answer := func(err error) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	}
	now := metav1.Now()
	terminating := apierrors.NewForbidden(maps, "a", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for name, test := range map[string]struct {
		there     *corev1.ConfigMap
		namespace *corev1.Namespace
		answer    error
		min, max  int
	}{
		"it is as it should be":        {there: bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = content })},
		"it is missing":                {min: 1, max: 3},
		"it differs":                   {there: bundleMap("a", func(m *corev1.ConfigMap) { m.Data[BundleKey] = "x" }), min: 1, max: 3},
		"it is being deleted":          {there: bundleMap("a", func(m *corev1.ConfigMap) { m.DeletionTimestamp, m.Finalizers = &now, []string{"x"} })},
		"excluded namespace":           {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}},
		"namespace is being deleted":   {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now, Finalizers: []string{"x"}}}},
		"namespace terminates":         {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}},
		"it exists already":            {answer: apierrors.NewAlreadyExists(maps, ConfigMapName), min: 1, max: 3},
		"the namespace is gone":        {answer: apierrors.NewNotFound(maps, ConfigMapName), min: 1, max: 3},
		"the namespace is going":       {answer: terminating, min: 1, max: 3},
		"gone before its repair":       {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewNotFound(maps, ConfigMapName), min: 1, max: 3},
		"refused":                      {answer: apierrors.NewForbidden(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
		"a conflict at its repair":     {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewConflict(maps, ConfigMapName, errors.New("no")), min: 25, max: 32},
		"no answer":                    {answer: errors.New("connection refused"), min: 25, max: 32},
		"a repair is refused, for now": {there: bundleMap("a", func(*corev1.ConfigMap) {}), answer: apierrors.NewInternalError(errors.New("no")), min: 25, max: 32},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.namespace == nil {
					test.namespace = space
				}
				objects := []runtime.Object{test.namespace.DeepCopy()}
				if test.there != nil {
					objects = append(objects, test.there.DeepCopy())
				}
				var react clienttesting.ReactionFunc
				if test.answer != nil {
					react = answer(test.answer)
				}
				d, end := controllerOn(t, file, react, objects...)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := len(d.writes()); got < test.min || got > test.max {
					t.Errorf("%d writes in ten minutes, want %d to %d", got, test.min, test.max)
				}
				if took := end(); took > time.Second {
					t.Errorf("its end took %v", took)
				}
			})
		})
	}
}

// The waits of a namespace whose writes fail double, and begin anew after a success.
func TestFailedWritesBackOffAndBeginAnew(t *testing.T) {
	file := bundleFileWith(t, certificate(t, 1))
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
		d, end := controllerOn(t, file, func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			return fails, nil, errors.New("no")
		}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
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
				if wait == 0 && i <= 2 {
					continue // the first events of the caches
				}
				if wait != want && wait != 2*want {
					t.Errorf("wait %d is %v, want %v", i, wait, want)
				}
				want = wait
				want = min(2*want, lastRetry)
			}
		}
		check(20)
		set(false)
		time.Sleep(lastRetry)
		synctest.Wait()
		maps := d.CoreV1().ConfigMaps("a")
		if _, err := maps.Get(t.Context(), ConfigMapName, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		set(true)
		if err := maps.Delete(t.Context(), ConfigMapName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check(20)
		end()
	})
}

// Run returns when the write that is under way has been answered, and after that nothing is
// written, whatever changes.
func TestRunAwaitsItsWriteAndThenNothingIsWritten(t *testing.T) {
	file := bundleFileWith(t, certificate(t, 1))
	synctest.Test(t, func(t *testing.T) {
		d, end := controllerOn(t, file, func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(3 * time.Second)
			return false, nil, nil
		}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		time.Sleep(time.Second) // one is being written, the other one waits
		if took := end(); took != 2*time.Second {
			t.Errorf("its end took %v, want the 2 s until the answer", took)
		}
		if got := len(d.writes()); got != 1 {
			t.Errorf("%d writes, want the one that was under way", got)
		}
		if _, err := d.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(certificate(t, 2)), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := len(d.writes()); got != 2 { // the test's own
			t.Errorf("%d writes after the end", got-2)
		}
	})
}

// A changed bundle is one write for each namespace.
func TestAChangedBundleIsOneWriteEach(t *testing.T) {
	file := bundleFileWith(t, certificate(t, 1))
	synctest.Test(t, func(t *testing.T) {
		d, end := controllerOn(t, file, nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		time.Sleep(time.Minute)
		if err := os.WriteFile(file, []byte(certificate(t, 2)), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(d.writes()); got != 4 {
			t.Errorf("%d writes, want two for each of two namespaces", got)
		}
		end()
	})
}
