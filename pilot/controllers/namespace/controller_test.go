package namespace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The cache holds the current bundle once.
func TestSlimConfigMap_SharesBundle(t *testing.T) {
	content := string([]byte("content"))
	slim := slimConfigMap(func() string { return content })
	got := slim(&corev1.ConfigMap{Data: map[string]string{"theirs": "x", BundleKey: string([]byte("content"))}})
	if value := got.Data[BundleKey]; len(got.Data) != 1 || unsafe.StringData(value) != unsafe.StringData(content) {
		t.Errorf("kept %v", got)
	}
}

// Warm reads the bundle and fills the caches. Run and a second Warm read nothing more.
func TestWarm_ReadsOnce(t *testing.T) {
	file := bundleFile(t, string(harness.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"))
		c := s.controller(Config{BundleFile: file})
		for range 2 {
			if err := c.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if c.bundle.current() == "" || s.count() != 0 {
			t.Errorf("the bundle is not read, or %d writes", s.count())
		}
		for range 2 {
			s.run(c, func() {
				if s.bundle("a") == "" {
					t.Error("no ConfigMap right after the start")
				}
			})
			s.remove(configMapResource, "a", ConfigMapName)
		}
		c.Close()
		var reads []string
		for _, action := range s.Clientset.Actions() {
			if list, ok := action.(k8stesting.ListAction); ok {
				reads = append(reads, action.GetResource().Resource+" "+list.GetListRestrictions().Fields.String())
			}
		}
		slices.Sort(reads)
		if want := []string{"configmaps metadata.name=" + ConfigMapName, "namespaces "}; !slices.Equal(reads, want) {
			t.Errorf("lists %q, want %q", reads, want)
		}
	})
}

func TestRun_WithoutReadPermission(t *testing.T) {
	file := bundleFile(t, string(harness.CA(t)))
	for _, kind := range []string{"namespaces", "configmaps"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, space("a"))
				forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no"))
				s.Clientset.PrependReactor("list", kind, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
				c := s.controller(Config{BundleFile: file})
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("not in time"))
				defer cancel()
				if err := c.Warm(ctx); err == nil || !contains(err.Error(), "not in time", "list "+kind) {
					t.Errorf("Warm returned %v", err)
				}
				s.run(c, func() { time.Sleep(10 * time.Minute) })
				c.Close()
				if n := s.count(); n != 0 || s.log.Count("permission denied", "list "+kind, "CA bundle is not distributed") != 1 {
					t.Errorf("%d writes; log:\n%s", n, &s.log)
				}
			})
		})
	}
}

// The first valid bundle is distributed within the interval, and a changed bundle costs one write
// for each namespace.
func TestRun_BundleChanges(t *testing.T) {
	one := string(harness.CA(t))
	two := string(harness.CA(t))
	file := bundleFile(t, "")
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"), space("b"))
		s.run(s.controller(Config{BundleFile: file}), func() {
			time.Sleep(10*time.Minute + time.Millisecond)
			if n := s.count(); n != 0 {
				t.Errorf("%d writes without a bundle", n)
			}
			for _, content := range []string{one, two} {
				write(t, file, content)
				start := time.Now()
				time.Sleep(time.Minute)
				const want = time.Second - time.Millisecond
				if got := s.since(start); !slices.Equal(got, []time.Duration{want, want}) {
					t.Errorf("writes after %v, want 2 after %v", got, want)
				}
				if s.bundle("a") != content || s.bundle("b") != content {
					t.Error("the bundle is not distributed")
				}
			}
		})
	})
}

func TestRun_NamespaceLifecycle(t *testing.T) {
	content := string(harness.CA(t))
	file := bundleFile(t, content)
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.run(s.controller(Config{BundleFile: file}), func() {
			s.put(space("a"))
			synctest.Wait()
			if s.bundle("a") != content {
				t.Error("no ConfigMap in a new namespace")
			}
			s.put(terminating("a"))
			synctest.Wait()
			s.remove(configMapResource, "a", ConfigMapName)
			time.Sleep(time.Hour)
			if s.bundle("a") != "" {
				t.Error("ConfigMap created in a terminating namespace")
			}
			s.put(space("a"))
			synctest.Wait()
			if s.bundle("a") != content || s.count() != 2 {
				t.Errorf("%d writes, and the ConfigMap has %q", s.count(), s.bundle("a"))
			}
		})
	})
}
