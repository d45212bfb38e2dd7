package ground

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// certificate is a CA's, as PEM.
func certificate(t *testing.T) string { return string(certs.CA(t)) }

// bundleFile is a file that the kubelet keeps: a symlink to ..data/<name>, where ..data
// is a symlink to a folder that is swapped.
type bundleFile struct {
	t      *testing.T
	folder string
	path   string
	n      int
}

func newBundleFile(t *testing.T, content string) *bundleFile {
	f := &bundleFile{t: t, folder: t.TempDir()}
	f.path = filepath.Join(f.folder, namespace.BundleKey)
	f.swap(content)
	if err := os.Symlink(filepath.Join("..data", namespace.BundleKey), f.path); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *bundleFile) swap(content string) {
	f.t.Helper()
	f.n++
	version := "..v" + string(rune('0'+f.n))
	link := filepath.Join(f.folder, "..data_tmp")
	if err := errors.Join(
		os.Mkdir(filepath.Join(f.folder, version), 0o700),
		os.WriteFile(filepath.Join(f.folder, version, namespace.BundleKey), []byte(content), 0o600),
		os.Symlink(version, link),
		os.Rename(link, filepath.Join(f.folder, "..data")),
	); err != nil {
		f.t.Fatal(err)
	}
}

// writes counts requests that write, by method and path.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper { return &counting{w, next} }

type counting struct {
	*writes
	next http.RoundTripper
}

func (c *counting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		c.mu.Lock()
		c.all = append(c.all, req.Method+" "+req.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(req)
}

func (c *counting) WrappedRoundTripper() http.RoundTripper { return c.next }

func (w *writes) to(words ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, line := range w.all {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// bundleRights are what the namespace controller needs.
func bundleRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "patch"}, ResourceNames: []string{namespace.ConfigMapName}},
	}
}

// spread is what a namespace's ConfigMap carries, "" when there is none.
func spread(t *testing.T, c kube.Client, ns string) string {
	t.Helper()
	configMap, err := c.Kube().CoreV1().ConfigMaps(ns).Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return configMap.Data[namespace.BundleKey]
}

// stage is a controller at work, with no more rights than it needs.
type stage struct {
	admin      kube.Client
	controller *namespace.Controller
	journal    journal
	writes     *writes
	file       *bundleFile
	home       string
	end        func()
}

// controllerAt runs a controller for the test. The namespaces of all other tests are
// excluded by looking at none but one's own.
func controllerAt(t *testing.T, content string, excluded ...string) *stage {
	t.Helper()
	c := cluster.Shared(t)
	s := &stage{admin: c.Client(t), journal: newJournal(), writes: &writes{}, file: newBundleFile(t, content), home: c.Namespace(t)}
	limited := identity(t, c, s.home, "a", bundleRights()...)
	counted, err := kube.Derive(limited, kube.WithWrapTransport(s.writes.wrap))
	if err != nil {
		t.Fatal(err)
	}
	s.controller, err = namespace.New(counted, namespace.Config{
		BundleFile: s.file.path, Excluded: append(namespace.DefaultExcluded(), excluded...),
		BundleInterval: 10 * time.Millisecond, Logger: s.journal.logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.run(t)
	return s
}

// run runs the controller until end or the test's end.
func (s *stage) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s.end = during(t, func(stop <-chan struct{}) {
		go func() { <-stop; cancel() }()
		if err := s.controller.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

func (s *stage) carries(t *testing.T, ns, content string) {
	t.Helper()
	await(t, "bundle in "+ns, func() bool { return spread(t, s.admin, ns) == content })
}

func TestBundleIsSpreadRepairedAndFollowed(t *testing.T) {
	c := cluster.Shared(t)
	one, two, three := certificate(t), certificate(t), certificate(t)
	excluded, early := c.Namespace(t), c.Namespace(t)
	s := controllerAt(t, one, excluded)
	maps := s.admin.Kube().CoreV1().ConfigMaps(early)
	s.carries(t, early, one)
	s.carries(t, "default", one)
	s.carries(t, s.home, one)
	made, err := maps.Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if err != nil || made.Labels["istio.io/config"] != "true" {
		t.Errorf("made %v, %v", made.Labels, err)
	}

	t.Log("a new namespace")
	late := c.Namespace(t)
	s.carries(t, late, one)

	t.Log("an edit, with others' labels, annotations and keys")
	edit := `{"metadata":{"labels":{"theirs":"1"},"annotations":{"theirs":"2"}},"data":{"root-cert.pem":"x","theirs":"3"}}`
	if _, err := maps.Patch(t.Context(), namespace.ConfigMapName, types.MergePatchType, []byte(edit), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, early, one)
	repaired, err := maps.Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if err != nil || repaired.Labels["theirs"] != "1" || repaired.Annotations["theirs"] != "2" || repaired.Data["theirs"] != "3" {
		t.Errorf("others' parts are gone: %v %v %v, %v", repaired.Labels, repaired.Annotations, repaired.Data, err)
	}

	t.Log("the key as binary data")
	binary := `{"data":{"root-cert.pem":null},"binaryData":{"root-cert.pem":"eA=="}}`
	if _, err := maps.Patch(t.Context(), namespace.ConfigMapName, types.MergePatchType, []byte(binary), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, early, one)

	t.Log("a deletion")
	if err := maps.Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, early, one)

	t.Log("a new bundle by a swap of symlinks")
	s.file.swap(two)
	for _, ns := range []string{early, late, "default", s.home} {
		s.carries(t, ns, two)
	}

	t.Log("a file that is no bundle")
	for i, wrong := range []string{"", "no PEM", two[:len(two)/2]} {
		s.file.swap(wrong)
		await(t, "report", func() bool { return s.journal.matching("ERROR CA bundle is invalid") == i+1 })
	}
	if err := maps.Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, early, two) // the last good one is in force
	s.file.swap(three)
	s.carries(t, early, three)
	s.carries(t, late, three)

	for _, ns := range []string{excluded, "kube-system", "kube-public", "kube-node-lease"} {
		if got := s.writes.to("/namespaces/" + ns + "/"); got != 0 {
			t.Errorf("%d writes to the excluded namespace %s", got, ns)
		}
	}
	if got := s.journal.matching("WARN"); got != 0 {
		t.Errorf("%d warnings with rights that suffice", got)
	}

	t.Log("its next term makes up for what was missed, with one write") // that it writes nothing before: writes_test.go there
	s.end()
	before := s.writes.to("/namespaces/" + early + "/")
	if err := maps.Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	s.carries(t, early, three)
	if got := s.writes.to("/namespaces/"+early+"/") - before; got != 1 {
		t.Errorf("%d writes to make up for one deletion", got)
	}
}

func TestTerminatingNamespaceIsLeftAlone(t *testing.T) {
	c := cluster.Shared(t)
	one, two := certificate(t), certificate(t)
	s := controllerAt(t, one)
	going := c.Namespace(t)
	s.carries(t, going, one)
	keeper := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "keeper", Finalizers: []string{"incumbent.dev/test"}}}
	maps := s.admin.Kube().CoreV1().ConfigMaps(going)
	if _, err := maps.Create(t.Context(), keeper, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteNamespace(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	await(t, "ConfigMap removed with the namespace", func() bool { return spread(t, s.admin, going) == "" })
	// A change for all namespaces, the terminating one included.
	before := s.writes.to("/namespaces/" + going + "/")
	s.file.swap(two)
	s.carries(t, s.home, two)
	s.carries(t, "default", two)
	if got := s.writes.to("/namespaces/" + going + "/"); got != before {
		t.Errorf("%d writes to a terminating namespace", got-before)
	}
	if got := s.journal.matching("WARN"); got != 0 {
		t.Errorf("%d warnings", got)
	}
	release := `{"metadata":{"finalizers":null}}`
	if _, err := maps.Patch(t.Context(), "keeper", types.MergePatchType, []byte(release), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestMissingRightsToSpreadAreReportedOnceAndRecoveredFrom(t *testing.T) {
	for name, lacking := range map[string]int{"namespaces": 0, "create": 1, "list-configmaps": 2} {
		t.Run(name, func(t *testing.T) {
			c := cluster.Shared(t)
			admin, home, j := c.Client(t), c.Namespace(t), newJournal()
			limited := identity(t, c, home, "a", slices.Delete(bundleRights(), lacking, lacking+1)...)
			content := certificate(t)
			controller, err := namespace.New(limited, namespace.Config{BundleFile: newBundleFile(t, content).path, Logger: j.logger(t)})
			if err != nil {
				t.Fatal(err)
			}
			s := &stage{admin: admin, controller: controller}
			s.run(t)
			await(t, "report", func() bool { return j.matching("WARN", "forbidden") > 0 })
			if got := spread(t, admin, home); got != "" {
				t.Errorf("spread without the right to: %q", got)
			}
			grant(t, admin, home+":a", bundleRights()...)
			s.carries(t, home, content)
			// Without the right to list there is none to watch either.
			if got := j.matching("WARN"); got > 2 {
				t.Errorf("%d warnings for one missing right", got)
			}
		})
	}
}

func TestWarmedControllerStartsWithoutReading(t *testing.T) {
	c := cluster.Shared(t)
	admin, home, content := c.Client(t), c.Namespace(t), certificate(t)
	limited := identity(t, c, home, "a", bundleRights()...)
	controller, err := namespace.New(limited, namespace.Config{BundleFile: newBundleFile(t, content).path, Logger: newJournal().logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if err := controller.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	cancel() // the caches stay
	if got := spread(t, admin, home); got != "" {
		t.Errorf("spread while warming up: %q", got)
	}
	s := &stage{admin: admin, controller: controller}
	for range 3 {
		s.run(t)
		s.carries(t, home, content)
		if err := controller.Run(t.Context()); !errors.Is(err, reconcile.ErrRunning) {
			t.Errorf("a second Run returned %v", err)
		}
		s.end()
		if err := admin.Kube().CoreV1().ConfigMaps(home).Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The bundle comes later than the controller, which waits for it.
func TestBundleThatComesLate(t *testing.T) {
	s := controllerAt(t, "")
	await(t, "report", func() bool { return s.journal.matching("ERROR", "it is empty") == 1 })
	content := certificate(t)
	s.file.swap(content)
	s.carries(t, s.home, content)
}

// Not parallel: it takes the API server away.
func TestBundleIsRepairedAfterTheAPIServerWasAway(t *testing.T) {
	c := cluster.Shared(t)
	content := certificate(t)
	s := controllerAt(t, content)
	s.carries(t, s.home, content)
	takeAway(t, c)()
	late := c.Namespace(t)
	if err := s.admin.Kube().CoreV1().ConfigMaps(s.home).Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, s.home, content)
	s.carries(t, late, content)
}
