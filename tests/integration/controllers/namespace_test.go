package controllers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// certificate returns a CA certificate as PEM.
func certificate(t *testing.T) string { return string(certs.CA(t)) }

// bundleFile is a file behind symlinks, like the kubelet creates it for a mounted ConfigMap.
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

// bundleRights returns the permissions of the namespace controller.
func bundleRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "patch"}, ResourceNames: []string{namespace.ConfigMapName}},
	}
}

// spread returns the bundle of a namespace, or "".
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

// stage is a running controller with minimal permissions.
type stage struct {
	admin      kube.Client
	controller *namespace.Controller
	journal    journal
	sent       *requests
	file       *bundleFile
	home       string
}

// controllerAt runs a namespace controller.
func controllerAt(t *testing.T, content string, excluded ...string) *stage {
	t.Helper()
	c := cluster.Shared(t)
	s := &stage{admin: c.Client(t), journal: newJournal(), sent: &requests{}, file: newBundleFile(t, content), home: c.Namespace(t)}
	limited := identity(t, c, s.home, "a", bundleRights()...)
	counted, err := kube.Derive(limited, kube.WithWrapTransport(s.sent.wrap))
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
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	during(t, func(stop <-chan struct{}) {
		go func() { <-stop; cancel() }()
		if err := s.controller.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *stage) carries(t *testing.T, ns, content string) {
	t.Helper()
	await(t, "bundle in "+ns, func() bool { return spread(t, s.admin, ns) == content })
}

func TestNamespace_Bundle(t *testing.T) {
	c := cluster.Shared(t)
	one, two := certificate(t), certificate(t)
	excluded, early := c.Namespace(t), c.Namespace(t)
	s := controllerAt(t, one, excluded)
	maps := s.admin.Kube().CoreV1().ConfigMaps(early)
	s.carries(t, early, one)
	s.carries(t, "default", one)
	s.carries(t, s.home, one)
	made, err := maps.Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if err != nil || made.Labels["istio.io/config"] != "true" {
		t.Errorf("created with labels %v, %v", made.Labels, err)
	}

	t.Log("a new namespace")
	late := c.Namespace(t)
	s.carries(t, late, one)

	t.Log("an edit")
	edit := `{"metadata":{"labels":{"theirs":"1"},"annotations":{"theirs":"2"}},"data":{"root-cert.pem":"x","theirs":"3"}}`
	if _, err := maps.Patch(t.Context(), namespace.ConfigMapName, types.MergePatchType, []byte(edit), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.carries(t, early, one)
	repaired, err := maps.Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if err != nil || repaired.Labels["theirs"] != "1" || repaired.Annotations["theirs"] != "2" || repaired.Data["theirs"] != "3" {
		t.Errorf("content of others is lost: %v %v %v, %v", repaired.Labels, repaired.Annotations, repaired.Data, err)
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

	for _, ns := range []string{excluded, "kube-system", "kube-public", "kube-node-lease"} {
		if got := s.sent.writes("/namespaces/" + ns + "/"); len(got) != 0 {
			t.Errorf("writes to the excluded namespace %s: %q", ns, got)
		}
	}
	if got := s.journal.Count("WARN"); got != 0 {
		t.Errorf("%d warnings", got)
	}
}
