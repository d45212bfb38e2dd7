package fence

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestFence_NamespaceOfLock(t *testing.T) {
	t.Parallel()
	c := startCluster(t, cluster.Options{})
	s := stageOn(t, c, fence.ConfigMap)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	d := s.declaration()
	d.Guards = append(d.Guards, fence.Guard{Resources: []string{"secrets"}, Labels: map[string]string{"managed": "yes"}})
	if _, err := s.admin.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: "managed", Labels: map[string]string{"managed": "yes"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.install(d)
	s.stands(a, b)
	err := s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{})
	s.refused("deleting the lock's namespace", err, "pilot fence remove --set "+s.namespace)
	s.must(install.Remove(t.Context(), s.admin, s.set.Name))
	s.allowed("deleting it without the fence", s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	eventually(t, "the namespace is gone", func() bool {
		_, err := s.admin.CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
