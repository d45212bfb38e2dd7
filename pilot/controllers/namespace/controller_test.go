package namespace

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/controllertest"
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
	if got := slim(&corev1.ConfigMap{Data: map[string]string{"theirs": "x"}}); got.Data != nil {
		t.Errorf("without a bundle: %v", got.Data)
	}
}

// Warm reads the bundle and fills the caches. Run and a second Warm read nothing more.
func TestWarm_ReadsOnce(t *testing.T) {
	file := bundleFile(t, string(certs.CA(t)))
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, space("a"))
		c := s.controller(Config{BundleFile: file})
		for range 2 {
			harness.Must(t, c.Warm(t.Context()))
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
			s.Delete("configmaps", "a", ConfigMapName)
		}
		c.Close()
		reads := s.Requests()
		reads = slices.DeleteFunc(reads, func(r apiserver.Request) bool { return r.Verb != "list" && r.Verb != "watch" })
		if len(reads) != 2 {
			t.Errorf("%v, want 2 reads", reads)
		}
	})
}

func TestWarm_ReadForbidden(t *testing.T) {
	file := bundleFile(t, string(certs.CA(t)))
	controllertest.CheckReads(t, "CA bundle is not distributed", map[string]string{"namespaces": "", "configmaps": "metadata.name=" + ConfigMapName},
		func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
			s := newStub(t, space("a"))
			return s.controller(Config{BundleFile: file}), s.Stub
		})
}

// The first valid bundle is distributed within the interval, and a changed bundle costs one write
// for each namespace.
func TestRun_BundleChanges(t *testing.T) {
	one := string(certs.CA(t))
	two := string(certs.CA(t))
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
