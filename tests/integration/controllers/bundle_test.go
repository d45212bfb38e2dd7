package controllers

import (
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/kube"
)

// certificate returns a CA certificate as PEM.
func certificate(t *testing.T) string { return string(certs.CA(t)) }

// bundleFile writes a bundle and returns the path of its file.
func bundleFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), namespace.BundleKey)
	harness.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// spread returns the bundle of a namespace, or "".
func spread(t *testing.T, c kube.Client, ns string) string {
	t.Helper()
	configMap, err := c.Kube().CoreV1().ConfigMaps(ns).Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	harness.Must(t, err)
	return configMap.Data[namespace.BundleKey]
}

// carries waits until a namespace has the bundle.
func carries(t *testing.T, admin kube.Client, ns, content string) {
	t.Helper()
	await(t, "bundle in "+ns, func() bool { return spread(t, admin, ns) == content })
}
