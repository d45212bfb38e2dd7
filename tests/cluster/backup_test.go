package cluster_test

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestBackupRestore(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client := c.Client(t).Kube()
	maps := client.CoreV1().ConfigMaps("default")
	create := func(name string) uint64 {
		t.Helper()
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		version, err := strconv.ParseUint(made.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	kept := create("kept")
	backup, err := c.Backup()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := maps.Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		create("kept")
	}
	lost := create("lost")
	if err := c.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if found, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil || found.ResourceVersion != strconv.FormatUint(kept, 10) {
		t.Errorf("kept is %v (%v), want version %d", found, err, kept)
	}
	if _, err := maps.Get(t.Context(), "lost", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("lost still exists: %v", err)
	}
	if again := create("again"); again >= lost {
		t.Errorf("the next version is %d, the last was %d", again, lost)
	}
}
